"""`blocksync snapshot`: keep a folder as it is at one instant; list, delete and restore what was kept."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import partial

import click

from blockfs.cli.groups import Verbs
from blockfs.cli.parameters import PATH, json_option, place_of
from blockfs.control.client import ControlClient
from blockfs.control.snapshots import SnapshotMsg
from blockfs.errors import UsageError
from blockfs.runtime.linux import syncfs
from blockfs.runtime.mountinfo import Mount, is_below
from blockfs.runtime.output import JsonValue, json_line, shown, table, tell
from blockfs.runtime.units import counted, format_size
from blockfs.service import offline


class _Verbs(Verbs):
    """`snapshot SRC NAME` is short for `snapshot create SRC NAME`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in the verb where there is none."""
        if len(args) > 1 and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["create", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say how the verbs are called, to who gave one word that is none."""
        if args[0] not in self.commands:
            raise UsageError(
                f"`snapshot {args[0]}`: expected `snapshot SRC NAME`, which keeps the folder SRC as NAME, or one "
                f"of the verbs {', '.join(self.commands)}"
            )
        return super().resolve_command(ctx, args)


@click.group("snapshot", cls=_Verbs)
def command() -> None:
    """Keep a folder or file as it is at one instant, read-only, under MOUNTPOINT/.snapshots.

    `blocksync snapshot SRC NAME` is short for `blocksync snapshot create SRC NAME`.
    """


@command.command("create")
@click.argument("src", type=PATH)
@click.argument("name", type=PATH)
@json_option
def create(src: bytes, name: bytes, as_json: bool) -> None:
    """Keep SRC and all below it as MOUNTPOINT/.snapshots/NAME. SRC is on a mount, or a VOLUME that is not mounted.

    All that programs had written before the command began is in it, and all files are of one instant. Takes time for
    each file, not for its bytes.
    """
    place = place_of(src)

    def mounted(client: ControlClient) -> SnapshotMsg:
        mount = _mount_of(place.mount, src)
        source = os.path.realpath(src)
        # The kernel's pages first: the mount process can only keep what it has been given.
        syncfs(mount.mountpoint)
        inside = mount.inside(source) if is_below(source, mount.mountpoint) else b""  # VOLUME stands for all
        return client.create_snapshot(inside, name)

    made = place.ask(mounted, partial(offline.create_snapshot, name=name))
    if as_json:
        json_line("snapshot", _fields(made))
    else:
        tell(f"{shown(made.name)}: {counted(made.files, 'file', 'files')}, {format_size(made.logical_bytes)}")


@command.command("list")
@click.argument("path", metavar="VOLUME|MOUNTPOINT", type=PATH)
@json_option
def list_(path: bytes, as_json: bool) -> None:
    """List the snapshots: name, when, of what, files and their size."""
    found = place_of(path).ask(ControlClient.snapshots, offline.list_snapshots)
    if as_json:
        for snapshot in found:
            json_line("snapshot", _fields(snapshot))
    elif found:
        table((shown(one.name), _described(one)) for one in found)


@command.command("delete")
@click.argument("path", metavar="VOLUME|MOUNTPOINT", type=PATH)
@click.argument("name", type=PATH)
@json_option
def delete(path: bytes, name: bytes, as_json: bool) -> None:
    """Delete a snapshot. What only it held becomes free with the next collection."""
    place = place_of(path)
    place.ask(partial(ControlClient.delete_snapshot, name=name), partial(offline.delete_snapshot, name=name))
    if as_json:
        json_line("deleted", {"volume": shown(place.volume), "name": shown(name)})


@command.command("restore")
@click.argument("mountpoint", type=PATH)
@click.argument("name", type=PATH)
@click.argument("dst", type=PATH)
@click.option("--path", "inside", type=PATH, default=b"", help="Only this file or folder of the snapshot.")
@json_option
def restore(mountpoint: bytes, name: bytes, dst: bytes, inside: bytes, as_json: bool) -> None:
    """Make DST, a new path on the mount, a copy of the snapshot NAME that shares its blocks.

    Nothing is overwritten: DST must not exist.
    """
    place = place_of(mountpoint)
    with place.client() as client:
        mount = _mount_of(place.mount, mountpoint)
        directory, last = os.path.split(os.path.abspath(dst))
        target = os.path.join(os.path.realpath(directory), last)
        goal = place_of(os.path.dirname(target))  # a bind mount, perhaps
        if goal.volume != place.volume:
            raise UsageError(
                f"{shown(dst)} is not on {shown(mount.mountpoint)}; copy from its .snapshots folder instead"
            )
        client.restore_snapshot(name, inside.strip(b"/"), _mount_of(goal.mount, dst).inside(target))
    if as_json:
        json_line("restored", {"name": shown(name), "path": shown(target)})


def _mount_of(mount: Mount | None, path: bytes) -> Mount:
    if mount is None:
        raise UsageError(f"{shown(path)}: its volume is mounted where this process can't see it")
    return mount


def _fields(snapshot: SnapshotMsg) -> dict[str, JsonValue]:
    return {
        "name": shown(snapshot.name),
        "source": shown(snapshot.source),
        "created_ns": snapshot.created_ns,
        "files": snapshot.files,
        "logical_bytes": snapshot.logical_bytes,
    }


def _described(snapshot: SnapshotMsg) -> str:
    when = datetime.fromtimestamp(snapshot.created_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    files = counted(snapshot.files, "file", "files")
    return f"{when}  /{shown(snapshot.source)}  {files}  {format_size(snapshot.logical_bytes)}"
