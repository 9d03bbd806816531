"""Whether a mounted volume is the one that was observed before, by where its journal is."""

from __future__ import annotations

import pytest

from blockfs.control.protocol import CursorMsg
from blockfs.tree.schema import LINE_BITS
from syncer.errors import RootIdentityError
from syncer.local.volume.mount import check_history

COPY = (5 << LINE_BITS) + 2


def at(generation: int, sequence: int) -> CursorMsg:
    return CursorMsg(mount_generation=generation, sequence=sequence)


@pytest.mark.parametrize(
    ("last", "now"),
    [
        (at(1, 100), at(1, 100)),
        (at(1, 100), at(1, 101)),
        (at(1, 100), at(2, 90)),  # an unclean end: what was not committed is not in the journal
        (at(3, 100), at(1_800_000_000, 90)),  # fsck made the row of the last mount anew
        (at(COPY, 100), at(COPY + 1, 1)),
    ],
)
def test_a_volume_that_went_on_is_the_same(last: CursorMsg, now: CursorMsg) -> None:
    check_history("the mount point /m", last, now)


@pytest.mark.parametrize(
    ("last", "now"),
    [(at(1, 100), at(1, 99)), (at(2, 100), at(1, 200)), (at(1, 1), at(COPY, 9)), (at(COPY, 1), at(1, 9))],
)
def test_one_that_went_back_or_was_copied_is_another(last: CursorMsg, now: CursorMsg) -> None:
    """Else what the copy does not have any more is deleted on the server, and its new versions pass for known ones."""
    with pytest.raises(RootIdentityError, match="--relink"):
        check_history("the mount point /m", last, now)
