"""Sharing, read-only: which accounts may read which objects. Inside a transaction.

A grant is of a name, not of a version: it stays when the object gets a new content, and goes when the object is deleted
or moved away. A grant of a directory is one of all below it, as in Pithos.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from syncer.core.model import Kind
from syncer.protocol.pithos.headers import kind_of
from syncer.server.catalogue.catalogue import Change, Reading
from syncer.server.catalogue.schema import ID, SERIAL, decode_texts, encode_texts

EVERYBODY: Final = "*"
"""As a reader: every account of this server."""


class SharedName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that somebody shares.

    Attributes:
        owner: Whose.
        container: In which container.
        name: The object, or the directory.
    """

    owner: str
    container: str
    name: str


def readers(view: Reading, slot: int) -> list[str]:
    """Who may read a name, ascending."""
    raw = view.get("grants", SERIAL.pack(slot))
    return [] if raw is None else decode_texts(raw)


def share(change: Change, account: int, container: int, slot: int, wanted: Sequence[str], shown: SharedName) -> None:
    """Let these and no others read a name.

    Args:
        change: The transaction.
        account: The owner's id.
        container: The container's id.
        slot: Of the name.
        wanted: Readers; none ends the sharing.
        shown: The same in names, for those who list what is shared with them.
    """
    place = ID.pack(account) + SERIAL.pack(container) + SERIAL.pack(slot)
    for reader in readers(change, slot):
        change.delete("shared", _reader_key(reader) + place)
    if not wanted:
        change.delete("grants", SERIAL.pack(slot))
        return
    change.put("grants", SERIAL.pack(slot), encode_texts(sorted(set(wanted))))
    for reader in wanted:
        change.put("shared", _reader_key(reader) + place, encode_texts([shown.owner, shown.container, shown.name]))


def withdraw(change: Change, account: int, container: int, slot: int) -> None:
    """End the sharing of a name that goes away."""
    if change.count("grants") and change.get("grants", SERIAL.pack(slot)) is not None:
        share(change, account, container, slot, (), SharedName(owner="", container="", name=""))


def granted_by(view: Reading, container: int, name: str) -> Iterator[tuple[str, list[str]]]:
    """The names whose grants hold for an object, the nearest first, and who may read: its own, directories above."""
    if not view.count("grants"):
        return
    for candidate in (name, *_above(name)):
        row = view.name(container, candidate)
        if row is None or row.deleted:
            continue
        found = readers(view, row.slot)
        if found and (candidate == name or _is_directory(view, row.newest)):
            yield candidate, found


def may_read(view: Reading, reader: str, container: int, name: str) -> bool:
    """Whether an account that is not the owner may read an object, which need not exist."""
    wanted = {reader, EVERYBODY}
    return any(not wanted.isdisjoint(found) for _, found in granted_by(view, container, name))


def shared_with(view: Reading, reader: str, owner: int | None = None) -> Iterator[SharedName]:
    """What is shared with an account, by owner id and container id; of one owner, or of all."""
    tail = b"" if owner is None else ID.pack(owner)
    for one in (reader, EVERYBODY):
        for _, raw in view.rows("shared", _reader_key(one) + tail):
            texts = decode_texts(raw)
            yield SharedName(owner=texts[0], container=texts[1], name=texts[2])


def _reader_key(reader: str) -> bytes:
    return hashlib.sha256(reader.encode("utf-8")).digest()


def _above(name: str) -> Iterator[str]:
    """The directories above a name, the nearest first."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _is_directory(view: Reading, serial: int) -> bool:
    return kind_of(view.existing_version(serial).content_type) is Kind.DIRECTORY
