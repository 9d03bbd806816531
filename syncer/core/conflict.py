"""Names of conflict copies: `name (conflict HOST UTC HASH6).ext`. Pure.

Deterministic, and recognisable by content: a run that resumes after a crash finds the copy that was already made,
whenever that was, instead of making another. From then on a conflict copy is an ordinary file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from typing import Final

import msgspec

from syncer.core.model import Content, Kind, Node
from syncer.core.paths import NAME_BYTES, cut_name

CONFLICT_MARK: Final = b" (conflict "
"""What every conflict name contains."""

_LONGEST_EXTENSION: Final = 16  # bytes with the dot; what follows a dot further away is not a file type
_TAIL: Final = re.compile(rb"\A[^()/]* ([0-9a-f]{6})(?: [0-9]+)?\)\Z")
_WHOLE_TAIL: Final = re.compile(
    rb"\A([A-Za-z0-9._-]{1,32}) ([^ ()/]+) ([0-9a-f]{6})(?: ([1-9][0-9]*))?\)(|\.[^./\0]{1,15})\Z"
)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Of which device a version is.

    Attributes:
        content: What it holds; of another content of the same node this says nothing.
        device: What the device is called, as in conflict names.
    """

    content: Content
    device: str


class ConflictName(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of a conflict copy says.

    Attributes:
        stem: The lost name up to its extension; only its beginning if `cut`.
        extension: With its dot; empty for none.
        host: Who made the copy.
        utc: When.
        hash6: What it holds, see `hash6`.
        number: Which copy of these four, from 1.
        cut: The name is so long that the end of the stem may be missing.
    """

    stem: bytes
    extension: bytes
    host: str
    utc: str
    hash6: str
    number: int = 1
    cut: bool = False

    @property
    def original(self) -> bytes:
        """The name that was lost; if `cut`, only a guess."""
        return self.stem + self.extension

    def may_be_of(self, name: bytes) -> bool:
        """Whether a copy of something called `name` would be called so."""
        if name == self.original:
            return True
        longer = len(name) > len(self.original) and name.startswith(self.stem) and name.endswith(self.extension)
        return self.cut and longer


def host_label(host: str) -> str:
    """A host's name reduced to what is safe in a file name everywhere; at most 32 characters."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", host)[:32] or "host"


def hash6(node: Node) -> str:
    """Six hex digits that name what a copy holds (a directory: its name, for its content is no single thing)."""
    if node.kind is Kind.FILE:
        assert node.content is not None
        return node.content.object_hash.hex()[:6]
    seed = node.target if node.kind is Kind.SYMLINK else node.name
    assert seed is not None
    return hashlib.sha256(seed).hexdigest()[:6]


def split_extension(name: bytes, kind: Kind) -> tuple[bytes, bytes]:
    """Stem and extension (with its dot); a directory has none, a leading dot is none."""
    stem, dot, extension = name.rpartition(b".")
    if kind is Kind.DIRECTORY or not stem.strip(b".") or not extension or len(extension) >= _LONGEST_EXTENSION:
        return name, b""
    return stem, dot + extension


def conflict_name(node: Node, *, host: str, utc: str, taken: Container[bytes]) -> bytes:
    """The name under which `node` is kept when it lost its own.

    Args:
        node: The loser, still with its own name. A file's content must be known.
        host: Label of this device.
        utc: Time as text, by convention `20240131T120000Z`.
        taken: Names that are in use in that directory; a number is appended until the name is free.

    Returns:
        At most 255 bytes: a long stem is cut, at a UTF-8 boundary if it is UTF-8.
    """
    stem, extension = split_extension(node.name, node.kind)
    attempt = 1
    while True:
        counter = f" {attempt}" if attempt > 1 else ""
        mark = CONFLICT_MARK + f"{host_label(host)} {utc} {hash6(node)}{counter})".encode() + extension
        name = cut_name(stem, NAME_BYTES - len(mark)) + mark
        if name not in taken:
            return name
        attempt += 1


def parse_conflict_name(name: bytes) -> ConflictName | None:
    """Reverse of `conflict_name`; None for a name that it does not make."""
    at = len(name)
    while (at := name.rfind(CONFLICT_MARK, 0, at)) > 0:
        # The rightmost mark that is followed by all the rest: the lost name may have been a conflict name itself, and
        # an extension may contain a mark, but has no room for what follows one.
        match = _WHOLE_TAIL.match(name[at + len(CONFLICT_MARK) :])
        if match is not None:
            host, utc, digits, number, extension = match.groups()
            return ConflictName(
                stem=name[:at],
                extension=extension,
                host=host.decode(),
                utc=utc.decode("utf-8", "surrogateescape"),
                hash6=digits.decode(),
                number=int(number or 1),
                cut=len(name) > NAME_BYTES - 4,
            )
    return None


def plain_name(name: ConflictName, number: int = 1) -> bytes:
    """A name for a conflict copy that shall be an ordinary file for good: `stem (HOST UTC).ext`, no conflict name."""
    counter = f" {number}" if number > 1 else ""
    end = f" ({name.host} {name.utc}{counter})".encode("utf-8", "surrogateescape") + name.extension
    return cut_name(name.stem, NAME_BYTES - len(end)) + end


def is_copy_of(candidate: bytes, node: Node) -> bool:
    """True if `candidate` is a conflict name made for `node`'s name and content, by whomever and whenever."""
    stem, extension = split_extension(node.name, node.kind)
    if not candidate.endswith(extension):
        return False
    body = candidate[: len(candidate) - len(extension)]
    left, mark, tail = body.rpartition(CONFLICT_MARK)
    match = _TAIL.match(tail) if mark else None
    if match is None or match.group(1) != hash6(node).encode():
        return False
    return left == stem or (len(candidate) > NAME_BYTES - 4 and stem.startswith(left))
