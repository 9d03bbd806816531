"""URLs: what they name, and which are refused before anything is looked up."""

from __future__ import annotations

import pytest
from hypothesis import given

from syncer.protocol.pithos.names import quote_name
from syncer.server.errors import BadRequest
from syncer.server.http.urls import Level, parse_reference, parse_target
from tests.strategies import object_names


@pytest.mark.parametrize(
    ("path", "level", "names"),
    [
        (b"/acct", Level.ACCOUNT, ("acct", "", "")),
        (b"/acct/", Level.ACCOUNT, ("acct", "", "")),
        (b"/v1/acct", Level.ACCOUNT, ("acct", "", "")),
        (b"/acct/c", Level.CONTAINER, ("acct", "c", "")),
        (b"/v1/acct/c/", Level.CONTAINER, ("acct", "c", "")),
        (b"/acct/c/o", Level.OBJECT, ("acct", "c", "o")),
        (b"/acct/c/a/b%2Fc%20d%25", Level.OBJECT, ("acct", "c", "a/b/c d%")),
        (b"/acct/v1/v1", Level.OBJECT, ("acct", "v1", "v1")),
    ],
)
def test_a_path_names_an_account_a_container_or_an_object(
    path: bytes, level: Level, names: tuple[str, str, str]
) -> None:
    target = parse_target(path, b"")
    assert target.level is level
    assert (target.account, target.container, target.name) == names


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"*",
        b"/",
        b"/v1",
        b"/v1/",
        b"/acct//",
        b"/acct//o",
        b"/acct/../o",
        b"/acct/c%2Fd/o",
        b"/acct/c/../o",
        b"/acct/c/%2e%2e/o",
        b"/acct/c//o",
        b"/acct/c/%2Fo",
        b"/acct/c/o/",
        b"/acct/c/a%0Ab",
        b"/acct/c/%00",
        b"/acct/c/%FF",
        b"/acct/c/\xff",
        b"/acct/c/%zz",
        b"/acct/" + b"%C3%A9" * 256 + b"/o",
        b"/acct/c/" + b"x" * 1025,
    ],
)
def test_an_unsafe_or_unreadable_path_is_refused(path: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_target(path, b"")


@given(object_names)
def test_every_safe_name_arrives(name: str) -> None:
    quoted = quote_name(name)
    assert parse_target(b"/a/c/" + quoted.encode(), b"").name == name
    assert parse_reference(f"/c/{quoted}") == ("c", name)


@pytest.mark.parametrize("query", [b"extract-archive=tar", b"x=%FF", b"\xff=1", b"a=1&extract-archive="])
def test_a_query_that_would_be_misunderstood_is_refused(query: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_target(b"/a/c", query)


def test_parameters_without_a_value_are_there() -> None:
    target = parse_target(b"/a/c", b"update&format=json&prefix=a%20b%2B")
    assert target.parameters == {"update": "", "format": "json", "prefix": "a b+"}


@pytest.mark.parametrize("value", ["", "/", "c", "/c", "/c/", "/c/../x", "/../x", "/c//x", "/c/%FF"])
def test_a_bad_reference_is_refused(value: str) -> None:
    with pytest.raises(BadRequest):
        parse_reference(value)


def test_a_query_of_many_parameters_is_refused() -> None:
    assert parse_target(b"/a/c", b"&".join([b"limit=1"] * 64)).parameters == {"limit": "1"}
    with pytest.raises(BadRequest):
        parse_target(b"/a/c", b"&".join([b"limit=1"] * 65))
