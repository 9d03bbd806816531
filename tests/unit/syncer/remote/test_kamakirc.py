"""kamaki's configuration: what it says is found, and what is wrong is named without showing a token."""

from __future__ import annotations

import contextlib
import io
from configparser import RawConfigParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.errors import UsageError
from syncer.remote.kamaki.kamakirc import parse_clouds

FULL = """
[global]
default_cloud = home
ca_certs = /etc/authorities.crt
colors = on
[cloud "home"]
url = https://accounts.example.org/identity/v2.0/
token = SECRET-1
pithos_container = files
[cloud "work"]
url = http://work.example.org/identity/v2.0
token = SECRET-2
pithos_url = http://work.example.org/v1
pithos_token = SECRET-3
pithos_uuid = u-1
ca_certs = /work.crt
ignore_ssl = on
"""
names = st.text(st.sampled_from("abcXYZ019_~@#$.:-"), min_size=1, max_size=12)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=";#"), min_size=1, max_size=20)


def test_a_cloud_is_found_with_all_it_says() -> None:
    clouds = parse_clouds(FULL, "rc")
    assert clouds.names == ["home", "work"]
    home, work = clouds.find(None), clouds.find("work")
    assert (home.name, home.url, home.token) == ("home", "https://accounts.example.org/identity/v2.0", "SECRET-1")
    assert (home.container, home.ca_certs, home.ignore_ssl) == ("files", "/etc/authorities.crt", False)
    assert (work.pithos_url, work.pithos_token, work.pithos_uuid) == ("http://work.example.org/v1", "SECRET-3", "u-1")
    assert (work.container, work.ca_certs, work.ignore_ssl) == ("pithos", "/work.crt", True)


def test_the_only_cloud_is_the_default() -> None:
    assert parse_clouds('[cloud "one"]\ntoken = t\n', "rc").find(None).name == "one"


@given(st.dictionaries(names, st.tuples(values, names), min_size=1, max_size=4))
def test_what_a_config_parser_wrote_is_read(wanted: dict[str, tuple[str, str]]) -> None:
    parser = RawConfigParser()
    for name, (token, container) in wanted.items():
        section = f'cloud "{name}"'
        parser.add_section(section)
        parser.set(section, "token", token)
        parser.set(section, "pithos_container", container)
    text = io.StringIO()
    parser.write(text)
    clouds = parse_clouds(text.getvalue(), "rc")
    for name, (token, container) in wanted.items():
        found = clouds.find(name)
        assert (found.token, found.container) == (token, container)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        clouds = parse_clouds(text, "rc")
        for name in clouds.names:
            clouds.find(name)


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (FULL, "none", "has no section [cloud \"none\"]; it knows 'home', 'work'"),
        ("[global]\n", None, "default_cloud is missing; name a cloud, of none"),
        ('[cloud "a"]\nurl = http://h/v2.0\n', "a", 'section [cloud "a"]: token is missing'),
        ('[cloud "a"]\ntoken = SECRET\nurl = h/v2.0\n', "a", "url: expected http(s)://"),
        ('[cloud "a"]\ntoken = SECRET\nignore_ssl = perhaps\n', "a", "ignore_ssl: expected on or off"),
        ("token = SECRET\n", None, "is not a kamaki configuration: MissingSectionHeaderError, line 1"),
        ('[cloud "a"]\ntoken = t\nSECRET\n', "a", "is not a kamaki configuration: ParsingError, line 3"),
    ],
)
def test_what_is_wrong_is_named(text: str, name: str | None, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_clouds(text, "/home/me/.kamakirc").find(name)
    assert told in str(caught.value)
    assert "/home/me/.kamakirc" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_no_text_form_shows_a_token() -> None:
    assert "SECRET" not in repr(parse_clouds(FULL, "rc").find("work"))
