from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.remote.url import nested, parse_url


def test_the_last_two_segments_are_account_and_container() -> None:
    url = parse_url("pithos+https://files.example.org/pithos/object-store/v1/8c0f/my%20vms")
    assert (url.scheme, url.host, url.port) == ("https", "files.example.org", 443)
    assert (url.base, url.account, url.container) == ("pithos/object-store/v1", "8c0f", "my vms")
    assert url.container_path == "/pithos/object-store/v1/8c0f/my%20vms"
    assert url.object_reference("a b") == "/my%20vms/a%20b"


def test_ports_and_literal_addresses_are_kept() -> None:
    url = parse_url("pithos+http://[::1]:8800/v1/demo/vms/")
    assert (url.host, url.port, url.origin) == ("::1", 8800, "http://[::1]:8800")
    assert str(url) == "pithos+http://[::1]:8800/v1/demo/vms"


def test_a_base_may_be_missing() -> None:
    assert parse_url("pithos+http://h/a/c").container_path == "/a/c"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://h/v1/a/c",
        "pithos://h/v1/a/c",
        "pithos+http:///v1/a/c",
        "pithos+http://h/c",
        "pithos+http://h/v1/a//",
        "pithos+http://h/v1/../c",
        "pithos+http://h/v1/a/..",
        "pithos+http://h/v1/a/%2e%2e",
        "pithos+http://h/v1/a/c%0a",
        "pithos+http://h/v1/a/c%ff",
        "pithos+http://h/v1/a/b%2Fc",
        "pithos+http://h:99999/v1/a/c",
        "pithos+http://h/v1/a/c?x=1",
        "pithos+http://h/v1/a/c#x",
        "pithos+http://h/v1/a/c?prefix=..",
        "pithos+http://h/v1/a/c?prefix=a//b",
        "pithos+http://h/v1/a/c?prefix=.blocksync/park",
        "pithos+http://h/v1/a/c?prefix=%ff",
    ],
)
def test_anything_else_is_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(ValueError, match="expected pithos"):
        parse_url(text)


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("", ""), ("?prefix=", ""), ("?prefix=a", "a"), ("?prefix=/a/b%20c/", "a/b c"), ("?prefix=a%26b%3F", "a&b?")],
)
def test_a_folder_of_a_container_can_be_meant(text: str, prefix: str) -> None:
    url = parse_url(f"pithos+http://h/v1/a/c{text}")
    assert (url.prefix, url.container_path) == (prefix, "/v1/a/c")
    assert parse_url(str(url)) == url
    assert url.whole == parse_url("pithos+http://h/v1/a/c")


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        ("", "", False),
        ("?prefix=a", "?prefix=a/", False),
        ("", "?prefix=a", True),
        ("?prefix=a/b", "?prefix=a", True),
        ("?prefix=a", "?prefix=ab", False),
        ("?prefix=a/b", "?prefix=a/c", False),
    ],
)
def test_folders_lie_in_each_other_or_do_not(one: str, other: str, answer: bool) -> None:
    assert nested(f"pithos+http://h/v1/a/c{one}", f"pithos+http://h/v1/a/c{other}") is answer
    assert nested(f"pithos+http://h/v1/a/c{one}", f"pithos+http://h/v1/a/d{other}") is False


def test_a_token_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="no credentials") as caught:
        parse_url("pithos+http://user:s3cret@h/v1/a/c")
    assert "s3cret" not in str(caught.value)


NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/"), min_size=1, max_size=40).filter(
    lambda name: name not in {".", ".."}
)


@given(NAMES, NAMES)
def test_a_url_survives_being_written_and_read(account: str, container: str) -> None:
    url = parse_url(f"pithos+http://h:1/v1/{quote(account, safe='')}/{quote(container, safe='')}")
    assert (url.account, url.container) == (account, container)
    assert parse_url(str(url)) == url
