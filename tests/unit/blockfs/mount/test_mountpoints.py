"""Which places can be mountpoints. Nothing is mounted here; that is the system tests' part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockfs.errors import MountError, NotFoundError, UsageError
from blockfs.mount import mountpoints
from blockfs.mount.mountpoints import MountBusyError
from blockfs.runtime import mountinfo


def as_bytes(path: Path) -> bytes:
    return os.fsencode(path)


def test_a_mount_must_not_hide_its_own_volume(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    for volume, mountpoint in ((inside, tmp_path), (tmp_path, inside), (tmp_path, tmp_path)):
        with pytest.raises(UsageError, match="inside each other"):
            mountpoints.check_places(as_bytes(volume), as_bytes(mountpoint))


def test_a_mountpoint_is_an_existing_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        mountpoints.check_places(b"/volume", as_bytes(tmp_path / "file"))
    with pytest.raises(NotFoundError, match="make the directory"):
        mountpoints.check_places(b"/volume", as_bytes(tmp_path / "missing"))
    mountpoints.check_places(b"/volume", as_bytes(tmp_path))


def test_an_empty_directory_can_be_taken_and_a_full_one_not(tmp_path: Path) -> None:
    mountpoints.take(as_bytes(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not empty"):
        mountpoints.take(as_bytes(tmp_path))


def test_a_dead_mount_of_another_kind_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mountpoints, "is_dead", lambda _path: True)
    with pytest.raises(MountError, match="not one of blocksync"):
        mountpoints.take(as_bytes(tmp_path))


def test_only_the_topmost_mount_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = mountinfo.Mount(root=b"/", mountpoint=b"/m", filesystem_type="fuse.blocksync", source=b"/v", device_minor=0)
    other = mountinfo.Mount(root=b"/", mountpoint=b"/m", filesystem_type="tmpfs", source=b"tmpfs", device_minor=0)
    monkeypatch.setattr(mountpoints, "read_mounts", lambda: [ours, other])
    assert mountpoints.mount_at(b"/m") is None
    monkeypatch.setattr(mountpoints, "read_mounts", lambda: [other, ours])
    assert mountpoints.mount_at(b"/m") == ours


def test_unmounting_what_is_no_mount_says_so(tmp_path: Path) -> None:
    with pytest.raises(MountError, match="can't unmount"):
        mountpoints.unmount(as_bytes(tmp_path))


@pytest.mark.parametrize(
    ("text", "kind"),
    [("umount: /m: target is busy", MountBusyError), ("failed to unmount /m: Device or resource busy", MountBusyError)],
)
def test_a_busy_answer_of_fusermount_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception]
) -> None:
    script = tmp_path / "fusermount3"
    script.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kind):
        mountpoints._fusermount(b"/m", lazy=False)


def test_allow_other_of_an_ordinary_user_needs_roots_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda _path, _mode: True)
    configuration = tmp_path / "fuse.conf"
    for text in (None, "", "#user_allow_other\n", "user_allow_others\n"):
        if text is not None:
            configuration.write_text(text)
        with pytest.raises(UsageError, match="user_allow_other"):
            mountpoints.check_rights(allow_other=True, configuration=str(configuration))
    configuration.write_text("# users\n user_allow_other \n")
    mountpoints.check_rights(allow_other=True, configuration=str(configuration))
    mountpoints.check_rights(allow_other=False, configuration=str(tmp_path / "missing"))
