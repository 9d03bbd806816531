"""Names in both directions: what is refused, and that the rest survives the URL."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncer.errors import UnsafeNameError
from syncer.protocol.pithos import names
from tests import strategies

UNSAFE = [
    "",
    "/",
    "/lead",
    "trail/",
    "a//b",
    ".",
    "..",
    "../x",
    "a/../b",
    "a/./b",
    "a/..",
    "./a",
    "new\nline",
    "nul\0",
    "bell\x07",
    "del\x7f",
    "c1\x85",
    "a/\udc80",
    "x" * 1025,
]
SAFE = [
    "a",
    "a b",
    "...",
    "a/b/c",
    "..a",
    "a..",
    "%2F",
    'CON:|<>?*"\\',
    "é",
    "e\u0301",
    "x" * 1024,
    ".blocksync/park/7",
]


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_name_is_refused_in_both_directions(name: str) -> None:
    assert names.object_name_problem(name)
    with pytest.raises(UnsafeNameError):
        names.path_from_name(name)
    with pytest.raises(UnsafeNameError):
        names.name_from_path(name.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("name", SAFE)
def test_odd_but_safe_names_pass(name: str) -> None:
    assert names.object_name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "x" * 257])
def test_an_unsafe_container_name_is_refused(name: str) -> None:
    assert names.container_name_problem(name)


def test_a_path_that_is_not_utf8_has_no_name() -> None:
    with pytest.raises(UnsafeNameError, match="UTF-8"):
        names.name_from_path(b"a/\xff")


@given(strategies.object_names)
@example("%2F")
@example("a%2Fb/é~")
def test_names_survive_url_and_path(name: str) -> None:
    assert names.unquote_name(names.quote_name(name).encode("ascii")) == name
    assert names.name_from_path(names.path_from_name(name)) == name


@given(st.binary(max_size=30))
def test_unquote_returns_text_or_says_what_is_wrong(raw: bytes) -> None:
    try:
        name = names.unquote_name(raw)
    except ValueError:
        return
    assert names.unquote_name(names.quote_name(name).encode()) == name


@pytest.mark.parametrize("raw", [b"%", b"%4", b"a%zz", b"%-1", b"%FF", b"%C3", b"\xff"])
def test_broken_escapes_and_bytes_that_are_not_utf8_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"UTF-8|escape"):
        names.unquote_name(raw)
