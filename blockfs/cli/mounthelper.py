"""`mount.fuse.blocksync`: what mount(8) runs for `mount -t fuse.blocksync VOLUME MOUNTPOINT` and for lines of fstab.

mount(8) looks for the program in /sbin under the name of the filesystem type. Without it, it would fall back to
mount.fuse3, which runs the subtype's name as a program with arguments that are not `blocksync`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum

import click

from blockfs.cli import mountoptions
from blockfs.cli.mount import mount_options
from blockfs.cli.parameters import PATH
from blockfs.errors import BlockfsError, UsageError
from blockfs.mount.daemon import run_daemon
from blockfs.runtime import interrupts
from blockfs.runtime.failures import said
from blockfs.runtime.mountinfo import FILESYSTEM_TYPE
from blockfs.runtime.notify import ServiceManager
from blockfs.runtime.output import note


class MountStatus(IntEnum):
    """Exit codes of mount(8), which hands ours on."""

    DONE = 0
    USAGE = 1  # incorrect invocation or permissions
    INTERRUPTED = 8
    FAILED = 32


@click.command("mount.fuse.blocksync", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("volume", type=PATH)
@click.argument("mountpoint", type=PATH)
@click.option("-o", "options", default="", metavar="OPTIONS", help="Comma-separated, as in fstab(5).")
@click.option("-f", "fake", is_flag=True, help="Check everything, mount nothing.")
@click.option("-s", "sloppy", is_flag=True, help="Ignore unknown options.")
@click.option("-n", is_flag=True, expose_value=False, help="Accepted: there is no mtab to write.")
@click.option("-v", is_flag=True, expose_value=False, help="Accepted.")
@click.option("-t", "kind", default=FILESYSTEM_TYPE, metavar="TYPE", help="Only fuse.blocksync.")
def command(*, volume: bytes, mountpoint: bytes, options: str, fake: bool, sloppy: bool, kind: str) -> None:
    """Mount VOLUME at MOUNTPOINT for mount(8); returns when it is ready.

    People use `mount -t fuse.blocksync` or `blocksync mount`.
    """
    if kind != FILESYSTEM_TYPE:
        raise UsageError(f"type {kind!r}: this program mounts {FILESYSTEM_TYPE} only")
    chosen = mount_options(volume, mountpoint, mountoptions.parse(options, sloppy=sloppy))
    if not fake:
        run_daemon(chosen, ServiceManager(None))


def main() -> None:
    """Entry point of the console script."""
    interrupts.complete_streams()
    interrupts.hear_of_children()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit code; a message is on stderr.
    """
    try:
        command.main(list(arguments), prog_name="mount.fuse.blocksync", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return MountStatus.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return MountStatus.USAGE
    except (BlockfsError, OSError) as error:
        note(f"mount.fuse.blocksync: {said(error)}")
        return MountStatus.USAGE if isinstance(error, UsageError) else MountStatus.FAILED
    return MountStatus.DONE
