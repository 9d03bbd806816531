"""What a device remembers of a look at a repository, and which of two moments, or versions, is the later one. Pure.

Source: docs/design/repository.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import msgspec

from syncer.core.model import Position, RemoteTag
from syncer.errors import RolledBackError
from syncer.remote.repository.format.history import CommitId, DeviceId, Vector
from syncer.remote.repository.merge import View, age


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A view, as a position.

    Attributes:
        repository: Its id, in hex.
        heads: The commits that the view was made of, in hex.
        vector: What was seen: numbers by device, in hex.
        last: Last commits, in hex, by number and device.
    """

    repository: str
    heads: tuple[str, ...]
    vector: dict[str, int]
    last: dict[str, tuple[int, str]] = {}

    @classmethod
    def of(cls, repository: bytes, view: View) -> Self:
        """Remember a view."""
        return cls(
            repository=repository.hex(),
            heads=tuple(head.hex() for head in view.heads),
            vector={device.hex(): number for device, number in sorted(view.vector.numbers.items())},
            last={device.hex(): (number, commit.hex()) for device, (number, commit) in sorted(view.last.items())},
        )

    @classmethod
    def at(cls, position: Position) -> Self:
        """Reverse of `position`."""
        return msgspec.json.decode(position.raw, type=cls)

    @classmethod
    def read(cls, position: Position) -> Self | None:
        """As `at`; None: another remote's."""
        try:
            return cls.at(position)
        except (msgspec.MsgspecError, ValueError):
            return None

    @property
    def position(self) -> Position:
        """As others keep it."""
        return Position(raw=msgspec.json.encode(self))

    @property
    def seen(self) -> Vector:
        """What was seen."""
        return Vector({DeviceId(bytes.fromhex(device)): number for device, number in self.vector.items()})

    def was_undone(self, now: Moment) -> bool:
        """Whether something of it is no longer so: not seen, or another commit has its device and number."""
        if not now.seen.covers_all(self.seen):
            return True
        both = ((said, now.last[device]) for device, said in self.last.items() if device in now.last)
        return any(one[0] == other[0] and one[1] != other[1] for one, other in both)

    @property
    def commits(self) -> tuple[CommitId, ...]:
        """The heads."""
        return tuple(CommitId(bytes.fromhex(head)) for head in self.heads)


class Views:
    """`Ages` of repositories: of versions their numbers tell, of moments what was seen."""

    def is_later(self, one: RemoteTag | Position, than: RemoteTag | Position) -> bool:
        """See Ages. A moment that has seen what another one has not is later; each of two may be, if one was undone."""
        if isinstance(one, Position) and isinstance(than, Position):
            return Moment.at(one).was_undone(Moment.at(than))
        return _number(one) > _number(than)

    def after(self, moment: Position, written: Iterable[RemoteTag]) -> Position:  # noqa: ARG002 - our own head tells
        """See Ages."""
        return moment

    def last_written(self, moment: Position, since: Position) -> str:  # noqa: ARG002 - as above
        """See Ages."""
        return ""

    def name(self, one: RemoteTag | Position) -> str:
        """See Ages."""
        return f"version {_number(one)}"

    def older(self, expected: str, found: str) -> RolledBackError:
        """See Ages."""
        return RolledBackError(expected, found)


def _number(one: RemoteTag | Position) -> int:
    return one.version if isinstance(one, RemoteTag) else age(Moment.at(one).seen)
