"""What a URL names: `/[v1/]ACCOUNT[/CONTAINER[/OBJECT]]?parameters`. Pure.

Read from the raw path: an ASGI server's decoded path has lost the difference between `/` and `%2F`, and bytes that are
not UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from syncer.protocol import segments
from syncer.protocol.pithos.names import container_name_problem, object_name_problem, unquote_name
from syncer.protocol.swift import STORAGE_PATH
from syncer.server.errors import BadRequest, UnsafeName

VERSION_SEGMENT: Final = "v1"  # may stand before the account, as in Pithos; no account is called so
SWIFT_PREFIX: Final = f"{STORAGE_PATH}/".encode()
SWIFT_SEGMENT: Final = "swift"  # no account is called so either
MAX_CONTAINER_BYTES: Final = 480  # of UTF-8, with the account's id a key in LMDB, whose keys end at 511

MAX_PARAMETERS: Final = 64  # we know some twenty

UNSUPPORTED: Final = frozenset({"extract-archive"})
"""Parameters of Pithos, and of extensions to come, that change what a request means. Ignoring them would do the wrong
thing, e.g. delete one object instead of a subtree: refused."""


class Level(Enum):
    """What is named."""

    ACCOUNT = "account"
    CONTAINER = "container"
    OBJECT = "object"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL; the names are safe.

    Attributes:
        account: Always there.
        container: "" for an account.
        name: Object name, "" for a container.
        parameters: Of the query; the last of equal names counts.
        is_swift: To be answered as OpenStack's storage does.
    """

    account: str
    container: str
    name: str
    parameters: Mapping[str, str]
    is_swift: bool = False

    @property
    def level(self) -> Level:
        """What is named."""
        if self.name:
            return Level.OBJECT
        return Level.CONTAINER if self.container else Level.ACCOUNT


_ONLY_OF: Final = {
    "bulk": Level.CONTAINER,
    "bulk-read": Level.CONTAINER,
    "changes": Level.CONTAINER,
    "base_version": Level.OBJECT,
    "since_version": Level.OBJECT,
}
"""Parameters of our extensions, and what they are about: refused elsewhere, for the same reason."""

_OF_HASHMAPS: Final = frozenset({"base_version", "since_version"})


def parse_target(raw_path: bytes, query: bytes) -> Target:
    """Read a URL.

    Args:
        raw_path: As on the wire, without the query.
        query: As on the wire, without the question mark.

    Raises:
        BadRequest: Not such a URL, an unsafe name, bytes that are not UTF-8, or a parameter that is not supported.
    """
    if not raw_path.startswith(b"/"):
        raise BadRequest("API endpoint not found")
    is_swift = raw_path.startswith(SWIFT_PREFIX)
    rest = raw_path.removeprefix(SWIFT_PREFIX) if is_swift else raw_path[1:]
    if not is_swift and rest.partition(b"/")[0] == VERSION_SEGMENT.encode():
        rest = rest.partition(b"/")[2]
    account, _, rest = rest.partition(b"/")
    if not account:
        raise BadRequest("API endpoint not found: expected /ACCOUNT[/CONTAINER[/OBJECT]]")
    container, slash, name = rest.partition(b"/")
    if slash and not container:
        raise BadRequest("Unsafe container name: it is empty")
    target = Target(
        account=_container(account, "account"),
        container=_container(container, "container") if container else "",
        name=_object(name) if name else "",
        parameters=parse_parameters(query),
        is_swift=is_swift,
    )
    if target.parameters.get(segments.PARAMETER) == "put" and not (is_swift and target.name):
        raise BadRequest("Static large objects are OpenStack's; this server has them below /swift/v1 only")
    misplaced = [name for name, level in _ONLY_OF.items() if name in target.parameters and target.level is not level]
    if misplaced:
        raise BadRequest(f"The parameter {misplaced[0]!r} is for a URL of a {_ONLY_OF[misplaced[0]].value}")
    if "hashmap" not in target.parameters and not _OF_HASHMAPS.isdisjoint(target.parameters):
        raise BadRequest(f"The parameters {' and '.join(sorted(_OF_HASHMAPS))} go with ?hashmap")
    return target


def parse_reference(raw: str) -> tuple[str, str]:
    """Read the value of Destination or X-Move-From: `/CONTAINER/OBJECT`, quoted.

    Raises:
        BadRequest: Not of this form, or an unsafe name.
    """
    container, _, name = raw.removeprefix("/").partition("/")
    if not container or not name:
        raise BadRequest(f"expected /CONTAINER/OBJECT, got {raw[:200]!r}")
    return _container(container.encode("latin-1"), "container"), _object(name.encode("latin-1"))


def parse_parameters(query: bytes) -> dict[str, str]:
    """Read a query.

    Raises:
        BadRequest: Not UTF-8, too many parameters, or one that is not supported.
    """
    if query.count(b"&") >= MAX_PARAMETERS:
        raise BadRequest(f"The query has more than {MAX_PARAMETERS} parameters")
    try:
        parameters = dict(parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict"))
    except ValueError:  # UnicodeDecodeError is one
        raise BadRequest("The query is not percent-encoded UTF-8") from None
    unsupported = UNSUPPORTED & parameters.keys()
    if unsupported:
        raise BadRequest(f"This server does not support the parameter {min(unsupported)!r}")
    return parameters


def _container(raw: bytes, what: str) -> str:
    name = _decoded(raw, what)
    problem = container_name_problem(name)
    if problem is None and len(name.encode("utf-8")) > MAX_CONTAINER_BYTES:
        problem = f"it has more than {MAX_CONTAINER_BYTES} bytes in UTF-8"
    if problem is not None:
        raise UnsafeName(f"Unsafe {what} name {name[:100]!r}: {problem}")
    return name


def _object(raw: bytes) -> str:
    name = _decoded(raw, "object")
    problem = object_name_problem(name)
    if problem is not None:
        raise UnsafeName(f"Unsafe object name {name[:100]!r}: {problem}")
    return name


def _decoded(raw: bytes, what: str) -> str:
    try:
        return unquote_name(raw)
    except ValueError as error:
        raise BadRequest(f"Bad {what} name: {error}") from None
