"""`blocksync fsck`: check the metadata, and repair them."""

from __future__ import annotations

import time

import click

from blockfs.cli.parameters import PATH, blocks_without_tree, json_option, place_of, progress
from blockfs.control.client import ControlClient
from blockfs.control.protocol import FsckReply, LossMsg
from blockfs.errors import LockedError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.output import JsonValue, json_line, note, shown, tell
from blockfs.runtime.units import counted
from blockfs.service import repair as offline_repair


@click.command("fsck")
@click.argument("path", metavar="VOLUME|MOUNTPOINT|FOLDER", type=PATH)
@click.option("--repair", is_flag=True, help="Repair what can be repaired. Not while mounted.")
@json_option
@click.pass_context
def command(context: click.Context, path: bytes, repair: bool, as_json: bool) -> None:
    """Check names, inodes, leaves, reference counts, blocks and staged data.

    FOLDER is a server's folder or a block directory: its block index and segments. The server must not run.

    Exit code 0: clean, or all repaired and nothing lost; 15: something is wrong, or was lost.
    """
    result = _fsck(path, repair=repair)
    if as_json:
        findings: list[JsonValue] = [
            {"kind": found.kind, "message": found.message, "remedy": found.remedy} for found in result.findings
        ]
        lost: list[JsonValue] = [_loss(loss) for loss in result.lost]
        clean = not findings
        checked = result.inodes_checked
        fields: dict[str, JsonValue] = {"clean": clean, "repaired": repair, "inodes_checked": checked}
        json_line("fsck", {**fields, "findings": findings, "lost": lost})
    else:
        _print(result, repair=repair)
    is_well = all(found.remedy for found in result.findings) and not result.lost if repair else not result.findings
    if not is_well:
        context.exit(ExitCode.CORRUPTION)


def _fsck(path: bytes, *, repair: bool) -> FsckReply:
    blocks = blocks_without_tree(path)
    if blocks is not None:
        with progress() as step:
            return offline_repair.fsck_blocks(blocks, repair=repair, step=step)
    place = place_of(path)

    def mounted(client: ControlClient) -> FsckReply:
        if repair:
            raise LockedError(shown(place.volume), client.server_pid)
        return client.fsck()

    def alone(volume: bytes) -> FsckReply:
        with progress() as step:
            return offline_repair.fsck(volume, repair=repair, now_ns=time.time_ns(), step=step)

    return place.ask(mounted, alone)


def _loss(loss: LossMsg) -> dict[str, JsonValue]:
    return {
        "inode": loss.inode,
        "path": shown(loss.path),
        "what": loss.what,
        "start": loss.start,
        "end": loss.end,
    }


def _print(result: FsckReply, *, repair: bool) -> None:
    for found in result.findings:
        done = f" -> {found.remedy}" if found.remedy and repair else ""
        tell(f"{found.kind}: {found.message}{done}")
    for loss in result.lost:
        where = shown(loss.path) or f"inode {loss.inode}"
        span = "" if loss.start is None or loss.end is None else f" bytes {loss.start} to {loss.end - 1}:"
        tell(f"lost: {where}:{span} {loss.what}")
    inodes = counted(result.inodes_checked, "inode", "inodes")
    tell(f"{inodes} checked, {counted(len(result.findings), 'finding', 'findings')}")
    if not repair and any(found.remedy for found in result.findings):
        note("`blocksync fsck --repair` repairs what can be repaired, with the volume unmounted or the server stopped")
