"""`blocksync mount`: serve a volume as a filesystem."""

from __future__ import annotations

import os

import click

from blockfs.cli.parameters import PATH
from blockfs.errors import NotFoundError
from blockfs.fuse.process import MountOptions, run_daemon, run_foreground
from blockfs.runtime.output import shown


@click.command("mount")
@click.argument("volume", type=PATH)
@click.argument("mountpoint", type=PATH)
@click.option("--foreground", is_flag=True, help="Stay attached, log to stderr; Ctrl-C unmounts.")
@click.option("--allow-other", is_flag=True, help="Let other users in, as far as permissions allow.")
@click.pass_context
def command(context: click.Context, volume: bytes, mountpoint: bytes, foreground: bool, allow_other: bool) -> None:
    """Mount VOLUME at MOUNTPOINT, an empty directory; returns when it is ready.

    The mount process logs to VOLUME/mount.log. SIGTERM unmounts it cleanly.
    """
    if not os.path.isfile(os.path.join(volume, b"volume.toml")):
        raise NotFoundError(f"{shown(volume)} is no blocksync volume; `blocksync init` makes one")
    options = MountOptions(
        volume=os.path.realpath(volume),
        mountpoint=os.path.realpath(mountpoint),
        allow_other=allow_other,
        debug=bool((context.obj or {}).get("debug")),
    )
    (run_foreground if foreground else run_daemon)(options)
