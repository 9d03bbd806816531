"""`blocksync clone`: an instant copy."""

from __future__ import annotations

import errno
import os
import stat

import click

from blockfs.cli.parameters import PATH, json_option
from blockfs.control.client import ControlClient
from blockfs.errors import BlockfsError, NotFoundError, UsageError
from blockfs.runtime.mountinfo import Mount, blocksync_mount_of
from blockfs.runtime.output import json_line, shown


@click.command("clone")
@click.argument("src", type=PATH)
@click.argument("dst", type=PATH)
@json_option
def command(src: bytes, dst: bytes, as_json: bool) -> None:
    """Make DST a copy of the file SRC that shares its blocks: instant at any size.

    Both on one blocksync mount. DST must not exist.
    """
    source = os.path.realpath(src)
    directory, name = os.path.split(os.path.abspath(dst))
    target = os.path.join(os.path.realpath(directory), name)
    mounts = _mounts_of(source, target)
    if os.path.lexists(target):
        raise UsageError(f"{shown(dst)} exists; clone makes a new file only")
    with ControlClient(mounts[0].source) as client:
        try:
            _write_out(source)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            client.flush()  # it knows what is lost, and says so
            raise BlockfsError(f"{shown(src)}: something that was written to it met an I/O error; repeat it") from None
        client.clone(mounts[0].inside(source), mounts[1].inside(target))
    if as_json:
        json_line("clone", {"source": shown(source), "path": shown(target), "size_bytes": os.lstat(target).st_size})


def _mounts_of(source: bytes, target: bytes) -> tuple[Mount, Mount]:
    """The blocksync mounts that the two paths lie on: of one volume, and two if one of them is a bind mount.

    Raises:
        NotFoundError: No source file, or no directory for the target.
        UsageError: Not on mounts of one volume.
    """
    for path in (source, os.path.dirname(target)):
        if not os.path.exists(path):
            raise NotFoundError(f"{shown(path)} does not exist")
    first, second = blocksync_mount_of(source), blocksync_mount_of(os.path.dirname(target))
    if first is None or second is None:
        raise UsageError(f"{shown(source if first is None else target)} is not on a blocksync mount")
    if first.source != second.source:
        raise UsageError(f"{shown(source)} and {shown(target)} are on different volumes; copy the file instead")
    return first, second


def _write_out(source: bytes) -> None:
    """Hand the kernel's dirty pages of the source to the mount process: it can only share what it has."""
    # O_NONBLOCK: a fifo without a writer must not hang the command; it is refused below.
    descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{shown(source)} is not a regular file; only files can be cloned")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
