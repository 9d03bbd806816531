"""What a race came to."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tests.race.users import Version

Found = AbstractSet[Version | None]
"""What some files hold; None: one of the sync's."""


@dataclass(slots=True)
class Outcome:
    """What a race came to.

    Attributes:
        displaced: Versions of users that the sync took the name away from.
        unseen: Those of them that it had not seen before: kept as conflict copies. None on a mount: it refuses.
        refused: Replacements that were given up, because the file had changed since it was looked at.
        written: Versions of users.
        lost: Versions of users that are nowhere.
    """

    displaced: int = 0
    unseen: int = 0
    refused: int = 0
    written: int = 0
    lost: list[Version] = field(default_factory=list)

    def judge(
        self,
        told: list[tuple[int, set[Version]]],
        named: AbstractSet[Version | None],
        displaced: AbstractSet[Version | None],
    ) -> None:
        """Add one round: what the writers tell, what is under their names, and what the sync took away and kept."""
        kept = displaced - {None}
        self.displaced += len(kept)
        for written, alive in told:
            self.written += written
            self.lost += sorted(alive - named - kept)
