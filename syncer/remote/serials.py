"""Servers that number all versions of a container in one row: what their moments are written as, and which is later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core.model import Position, RemoteTag
from syncer.errors import RootIdentityError


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in a container's history. As a `Position` it is this in JSON: states of earlier releases hold it so.

    Attributes:
        identity: UUID text of the container's life; "" on a server without `changes`.
        version: Serial of its last change at that moment; 0 if that is not told.
        modified_us: Time of that change: a server restored from a backup gives its serials out again.
        evidence: On a server without `changes`: what it says of the container as long as nothing changes. Empty if a
            further change might not show in it.
    """

    identity: str
    version: int
    modified_us: int
    evidence: tuple[str, ...] = ()

    @property
    def position(self) -> Position:
        """As others keep it."""
        return Position(raw=msgspec.json.encode(self))

    @property
    def is_distinct(self) -> bool:
        """Whether after any later change the server tells another moment."""
        return bool(self.identity or self.evidence)


class _Moment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a position tells its age: all that is kept of a container that was seen.

    Attributes:
        version: As in `Cursor`.
        identity: Likewise.
        written: UUID text of the object that got this version, where this device has written it (`Serials.after`).
    """

    version: int
    identity: str = ""
    written: str = ""


def cursor_of(position: Position) -> Cursor:
    """Reverse of `Cursor.position`."""
    return msgspec.json.decode(position.raw, type=Cursor)


class Serials:
    """`Ages` of such servers."""

    def is_later(self, one: RemoteTag | Position, than: RemoteTag | Position) -> bool:
        """See Ages. A plain Pithos tells no serial of a moment: then no version is known to be later."""
        if isinstance(than, RemoteTag):
            return (one if isinstance(one, RemoteTag) else _moment(one)).version > than.version
        limit = _moment(than)
        is_told = limit.version > 0 or limit.identity != "" or isinstance(one, Position)
        return is_told and _serial(one) > limit.version

    def after(self, moment: Position, written: Iterable[RemoteTag]) -> Position:
        """See Ages."""
        later = [tag for tag in written if self.is_later(tag, moment)]
        if not later:
            return moment
        newest = max(later, key=lambda tag: tag.version)
        at = replace(_moment(moment), version=newest.version, written=newest.uuid)
        return Position(raw=msgspec.json.encode(at))

    def last_written(self, moment: Position, since: Position) -> str:
        """See Ages."""
        return _moment(moment).written if self.is_later(moment, since) else ""

    def name(self, one: RemoteTag | Position) -> str:
        """See Ages."""
        return f"version {_serial(one)}"

    def older(self, expected: str, found: str) -> RootIdentityError:
        """See Ages."""
        return RootIdentityError("the container", expected, f"{found}: an older backup?")


def _serial(one: RemoteTag | Position) -> int:
    return one.version if isinstance(one, RemoteTag) else _moment(one).version


def _moment(one: Position) -> _Moment:
    return msgspec.json.decode(one.raw, type=_Moment)


def ranges_of(tags: Iterable[RemoteTag]) -> list[range]:
    """Serials as ranges without gaps, ascending."""
    found: list[range] = []
    for version in sorted({tag.version for tag in tags}):
        if found and found[-1].stop == version:
            found[-1] = range(found[-1].start, version + 1)
        else:
            found.append(range(version, version + 1))
    return found


SERIALS: Final = Serials()
