"""A small filesystem on a loop device on a recording disk, with real barriers between them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec


class Host(msgspec.Struct, frozen=True):
    """A kind of filesystem.

    Attributes:
        size_bytes: Of the disk.
        mkfs: What makes it.
        options: To mount it with.
        again: Options on top to mount an image of it while another one may be mounted.
        has_natives: The mounts on it are native.
    """

    size_bytes: int
    mkfs: tuple[str, ...]
    options: str
    again: str = ""
    has_natives: bool = False


HOSTS = {
    "ext4": Host(
        128 << 20,
        (
            "mkfs.ext4",
            "-q",
            "-F",
            "-b",
            "4096",
            "-J",
            "size=4",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
        ),
        "noatime,errors=continue",
    ),
    "xfs": Host(320 << 20, ("mkfs.xfs", "-q", "-K", "-m", "reflink=1"), "noatime", ",nouuid", has_natives=True),
    "btrfs": Host(256 << 20, ("mkfs.btrfs", "-q", "-K"), "noatime,nodiscard", has_natives=True),
}


class RecordedDisk:
    """Starts the recorder, attaches the loop device, makes and mounts a filesystem; takes it all down again.

    Args:
        home: An empty folder.
        kind: Of the filesystem, see `HOSTS`.

    Attributes:
        path: Where it is mounted.
        recording: The file that grows with each request.
    """

    def __init__(self, home: Path, kind: str = "ext4") -> None:
        self.path = home / "host"
        self.recording = home / "recording"
        self._home = home
        self._kind, self._host = kind, HOSTS[kind]
        self._backing = home / "recorder"
        self._device = ""
        self._recorder: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.path.mkdir()
        self._backing.mkdir()
        self._recorder = subprocess.Popen(
            [sys.executable, "-m", "tests.power.recorder", self._backing, self._home, str(self._host.size_bytes)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._recorder.stdout is not None
        try:
            assert self._recorder.stdout.readline() == "ready\n", "the recorder did not start"
            command = ["losetup", "--find", "--show", "--direct-io=on", self._backing / "disk"]
            self._device = _run(*command).strip()
            # Without direct I/O the host's page cache would stand between the loop device and the recording.
            assert _run("losetup", "--noheadings", "--output", "DIO", self._device).strip() == "1"
            _run(*self._host.mkfs, self._device)
            self._mount()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def position(self) -> int:
        """The clock: bytes recorded so far."""
        return os.stat(self.recording).st_size

    def fail(self, what: str) -> None:
        """Answer "writes" or "reads" with EIO from now on."""
        (self._home / f"fail-{what}").touch()

    def recover(self) -> None:
        """Work again."""
        for what in ("writes", "reads"):
            (self._home / f"fail-{what}").unlink(missing_ok=True)

    def remount(self) -> None:
        """As a person does whose ext4 has become read-only: its journal could not be written."""
        _run("umount", self.path)
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-t", self._kind, "-o", self._host.options, self._device, self.path)

    def close(self) -> None:
        """Unmount and end everything. What the filesystem writes while it is unmounted is recorded, too."""
        self.recover()
        if os.path.ismount(self.path):
            _run("umount", self.path)
        if self._device:
            _run("losetup", "--detach", self._device)
            self._device = ""
        if self._recorder is not None:
            if os.path.ismount(self._backing):
                # Lazily: whoever looks at the loop device just now, such as udev, delays the end of its file.
                _run("umount", "--lazy", self._backing)
            self._recorder.wait()
            assert self._recorder.stdout is not None
            self._recorder.stdout.close()
            self._recorder = None


class MountedImage:
    """An image, mounted: the filesystem recovers its journal first."""

    def __init__(self, image: Path, path: Path, kind: str = "ext4") -> None:
        self._image = image
        self._kind = kind
        self.path = path

    def __enter__(self) -> Self:
        self.path.mkdir(exist_ok=True)
        host = HOSTS[self._kind]
        options = f"loop,{host.options}{host.again}"
        _run("mount", "-t", self._kind, "-o", options, self._image, self.path)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        _run("umount", self.path)


def _run(*command: str | Path) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}: {ended.stderr}"
    return ended.stdout
