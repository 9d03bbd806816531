"""Arguments that several commands share: how paths become volumes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import click
import msgspec

from blockfs.control.client import ControlClient, NotMountedError
from blockfs.errors import NotFoundError
from blockfs.runtime.mountinfo import Mount, blocksync_mount_of, mounts_of_volume
from blockfs.runtime.output import shown
from blockfs.runtime.volumes import is_volume

R = TypeVar("R")

PATH: Final = click.Path(path_type=bytes)
"""Paths are bytes from the first line on: names need not be UTF-8."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a path means to us.

    Attributes:
        volume: Absolute real path of the volume directory.
        mount: The mount that the path lies on, or for a volume directory the first mount of it; None: not mounted.
    """

    volume: bytes
    mount: Mount | None

    def client(self) -> ControlClient:
        """Talk to the process that serves the volume.

        Raises:
            NotMountedError: There is none.
        """
        return ControlClient(self.volume)

    def ask(self, mounted: Callable[[ControlClient], R], alone: Callable[[bytes], R]) -> R:
        """Ask the process that serves the volume; where nobody does, work on the volume's files."""
        try:
            client = self.client()
        except NotMountedError:
            return alone(self.volume)
        with client:
            return mounted(client)


def place_of(path: bytes) -> Place:
    """Find the volume behind a VOLUME directory or any path on a blocksync mount.

    Raises:
        NotFoundError: No such path, or neither of the two.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"{shown(path)} does not exist") from None
    except OSError:
        pass  # a mount whose process has died: what it is the mount table says
    mount = blocksync_mount_of(path)
    if mount is not None:
        return Place(volume=mount.source, mount=mount)
    volume = os.path.realpath(path)
    if not is_volume(volume):
        raise NotFoundError(
            f"{shown(path)} is neither a blocksync volume nor on a blocksync mount; is the volume mounted? "
            "`blocksync init` makes a volume"
        )
    return Place(volume=volume, mount=next(iter(mounts_of_volume(volume)), None))


def blocks_without_tree(path: bytes) -> str | None:
    """The block directory that a path is, or that the server's folder at that path has; None for volumes and mounts."""
    if not is_volume(path):
        for folder in (path, os.path.join(path, b"blocks")):
            if os.path.isfile(os.path.join(folder, b"blocks.toml")):
                return os.fsdecode(os.path.realpath(folder))
    return None


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Say on a terminal what a long command does just now; nowhere else."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - 25 ms, where nobody looks

    with Console(file=sys.stderr, highlight=False, markup=False).status("") as status:
        yield status.update
