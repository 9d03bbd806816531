"""Extended attributes of an ordinary directory: what is read, set, kept and refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncer.core.model import RelPath
from syncer.errors import UnholdableError
from syncer.local.folder import xattrs

PLACE = RelPath(b"f")
NOBODY = 2**32 - 1


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "f", os.O_RDONLY | os.O_CREAT, 0o644)
    yield descriptor
    os.close(descriptor)


def test_only_attributes_of_users_are_read_and_links_are_not_followed(tmp_path: Path, opened: int) -> None:
    os.setxattr(opened, "user.a", b"1")
    (tmp_path / "link").symlink_to("f")
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert xattrs.read_entry(directory, b"f") == ((b"a", b"1"),)
        assert xattrs.read_entry(directory, b"link") == ()
    finally:
        os.close(directory)


def test_a_read_only_file_gets_its_attributes_and_keeps_its_mode(opened: int) -> None:
    os.fchmod(opened, 0o444)
    assert xattrs.write(opened, PLACE, ((b"a", b"1"),))
    assert not xattrs.write(opened, PLACE, ((b"a", b"1"),))
    assert os.fstat(opened).st_mode & 0o7777 == 0o444
    assert xattrs.read_open(opened) == ((b"a", b"1"),)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EOPNOTSUPP, errno.E2BIG])
def test_what_the_filesystem_cant_hold_is_named(opened: int, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(UnholdableError, match="can't hold its extended attributes"):
        xattrs.write(opened, PLACE, ((b"a", b"1"),))


def test_a_filesystem_without_attributes_has_no_opinion(opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "listxattr", refuse)
    assert xattrs.read_open(opened) is None


@pytest.mark.parametrize("synced", [True, False])
def test_a_replaced_files_acl_stays_under_the_new_mode(tmp_path: Path, opened: int, synced: bool) -> None:
    user = b"\2\0\0\0" + b"".join(
        tag.to_bytes(2, "little") + bits.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, bits, who in (
            (1, 6, 2**32 - 1),
            (2, 6, 12345),
            (4, 4, 2**32 - 1),
            (16, 6, 2**32 - 1),
            (32, 4, 2**32 - 1),
        )
    )
    os.setxattr(opened, "system.posix_acl_access", user)
    os.setxattr(opened, "user.a", b"1")
    new = os.open(tmp_path / "new", os.O_RDONLY | os.O_CREAT, 0o600)
    try:
        os.fchmod(new, 0o640)
        assert xattrs.keep(opened, new, synced=synced)
        assert os.fstat(new).st_mode & 0o7777 == 0o640
        assert "system.posix_acl_access" in os.listxattr(new)
        assert ("user.a" in os.listxattr(new)) == (not synced)
    finally:
        os.close(new)
