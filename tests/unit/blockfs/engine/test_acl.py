"""POSIX ACLs: what is no list, and how lists and modes agree. As Linux sees it: tests/system/test_posix_users.py."""

from __future__ import annotations

import errno
import struct

import pytest

from blockfs.engine.names.acl import Acl, AclEntry, Tag
from blockfs.errors import FsError

NOBODY = 0xFFFFFFFF


def acl(*entries: tuple[Tag, int, int]) -> Acl:
    return Acl(tuple(AclEntry(*entry) for entry in entries))


MINIMAL = acl((Tag.OWNER, 6, NOBODY), (Tag.OWNING_GROUP, 4, NOBODY), (Tag.OTHERS, 0, NOBODY))
NAMED = acl(
    (Tag.OWNER, 7, NOBODY),
    (Tag.USER, 6, 1000),
    (Tag.OWNING_GROUP, 5, NOBODY),
    (Tag.MASK, 6, NOBODY),
    (Tag.OTHERS, 1, NOBODY),
)


@pytest.mark.parametrize("given", [MINIMAL, NAMED])
def test_a_list_is_read_as_it_was_written(given: Acl) -> None:
    assert Acl.decode(given.encode()) == given


def test_group_bits_of_the_mode_are_the_masks() -> None:
    assert (MINIMAL.mode, MINIMAL.is_minimal) == (0o640, True)
    assert (NAMED.mode, NAMED.is_minimal) == (0o761, False)


def test_chmod_changes_the_mask_and_leaves_named_entries() -> None:
    changed = NAMED.with_mode(0o604)
    assert changed.mode == 0o604
    assert changed.entries[1:3] == NAMED.entries[1:3]
    assert MINIMAL.with_mode(0o777).mode == 0o777


def test_a_new_file_gets_no_more_than_it_was_made_with() -> None:
    assert NAMED.inherited(0o646).mode == 0o640


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"", errno.EINVAL),
        (struct.pack("<I", 1), errno.EOPNOTSUPP),
        (struct.pack("<I", 2), errno.EINVAL),
        (MINIMAL.encode() + b"x", errno.EINVAL),
        (MINIMAL.encode()[:-8], errno.EINVAL),
        (struct.pack("<IHHI", 2, 3, 7, 0), errno.EINVAL),
        (acl(*reversed([(e.tag, e.permissions, e.identity) for e in MINIMAL.entries])).encode(), errno.EINVAL),
        (acl(*[(e.tag, 8, e.identity) for e in MINIMAL.entries]).encode(), errno.EINVAL),
        (acl(*[(e.tag, e.permissions, e.identity) for e in NAMED.entries if e.tag != Tag.MASK]).encode(), errno.EINVAL),
    ],
)
def test_what_is_no_list_is_refused(value: bytes, number: int) -> None:
    with pytest.raises(FsError) as caught:
        Acl.decode(value)
    assert caught.value.errno == number
