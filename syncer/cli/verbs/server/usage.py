"""`blocksync usage`: what a server keeps, and for whom."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import click

from blockfs.runtime.output import JsonValue, json_line, note, shown
from blockfs.runtime.units import counted, format_size
from syncer.cli.output import columns
from syncer.cli.ui.servers import kept_in
from syncer.errors import NotFoundError
from syncer.server.catalogue.histories import MOST
from syncer.ui.ports import AccountFacts, ContainerFacts, StoreFacts

_HEADINGS = (">objects", ">size", ">versions", ">in old ones", "changed", "account", "container")


@click.command("usage")
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--token-file", type=click.Path(dir_okay=False), help="Where quotas are. Default: DIRECTORY/token.")
@click.option("--all", "is_all", is_flag=True, help=f"Count all versions, also of more than {MOST:,}.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per server, account and container.")
def command(*, directory: str, token_file: str | None, is_all: bool, as_json: bool) -> None:
    """Show what the server in DIRECTORY keeps, and for whom, while it runs or not.

    Old versions are told as if each were kept alone: equal blocks are stored once, so they take less.
    """
    if not os.path.isdir(os.path.join(directory, "catalogue")):
        raise NotFoundError(f"{directory} is no server's: give the folder that `blocksync serve` has")
    found = kept_in(directory, token_file or os.path.join(directory, "token"), None if is_all else MOST)
    if found.trouble:
        note(f"quotas are not known: {found.trouble}")
    if as_json:
        _tell(found, directory)
        return
    rows = [_row(account, each) for account in found.accounts for each in account.containers]
    title = (
        f"{directory}: {counted(found.versions, 'version', 'versions', between=',')} of objects, deletions among them; "
        f"{format_size(found.stored_bytes)} on the disk, in blocks of {format_size(found.block_size)}"
    )
    columns.show(title, _HEADINGS, rows)
    for account in found.accounts:
        used = sum(each.size_bytes for each in account.containers)
        quota = f"of {format_size(account.quota_bytes)}" if account.quota_bytes else "no quota"
        columns.line(f"{account.name}: {format_size(used)}, {quota}")
    if not all(each.is_counted for account in found.accounts for each in account.containers):
        note("there are too many versions to count while you wait; --all counts them")


def _tell(found: StoreFacts, directory: str) -> None:
    fields: dict[str, JsonValue] = {
        "directory": shown(os.fsencode(directory)),
        "block_size": found.block_size,
        "stored_bytes": found.stored_bytes,
        "versions": found.versions,
    }
    json_line("usage", fields)
    for account in found.accounts:
        size_bytes = sum(each.size_bytes for each in account.containers)
        json_line("account", {"account": account.name, "size_bytes": size_bytes, "quota": account.quota_bytes or None})
        for each in account.containers:
            json_line("container", _fields(account, each))


def _fields(account: AccountFacts, each: ContainerFacts) -> dict[str, JsonValue]:
    return {
        "account": account.name,
        "container": each.name,
        "objects": each.objects,
        "size_bytes": each.size_bytes,
        "versions": each.versions,
        "old_bytes": each.old_bytes,
        "is_counted": each.is_counted,
        "modified": each.modified_s,
    }


def _row(account: AccountFacts, each: ContainerFacts) -> tuple[str, ...]:
    more = "" if each.is_counted else "over "
    changed = datetime.fromtimestamp(each.modified_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"{each.objects:,}",
        format_size(each.size_bytes),
        f"{more}{each.versions:,}",
        f"{more}{format_size(each.old_bytes)}",
        changed,
        account.name,
        each.name,
    )
