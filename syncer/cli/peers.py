"""`blocksync peers`: devices on the network that blocks come from, and whether there are any."""

from __future__ import annotations

import os

import click

from blockfs.cli.groups import Verbs
from blockfs.runtime.output import json_line, note, shown
from syncer.cli.peering import switched_off
from syncer.cli.roots import PATH, LinkedRoot, Registry
from syncer.cli.several import for_each
from syncer.errors import UsageError
from syncer.watch import control

_JSON_HELP = "Print one JSON object per root, and a summary."


@click.group("peers", cls=Verbs)
def command() -> None:
    """Decide whether roots get blocks from devices on the network, and give them."""


@command.command("off")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help=_JSON_HELP)
def off_command(root: bytes | None, as_json: bool) -> int:
    """Have ROOT (default: every root, also later ones) neither ask devices on the network nor answer them."""
    return _switch(root, on=False, as_json=as_json)


@command.command("on")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help=_JSON_HELP)
def on_command(root: bytes | None, as_json: bool) -> int:
    """Undo `peers off` for ROOT (default: for every root)."""
    return _switch(root, on=True, as_json=as_json)


def _switch(root: bytes | None, *, on: bool, as_json: bool) -> int:
    registry = Registry(os.environ)
    if root is None:
        registry.set_peers(on=on)
    elif on and registry.peers_off:
        registry.get(root)
        raise UsageError(
            "peers are off for every root; `blocksync peers on`, then `blocksync peers off ROOT` for the others"
        )
    done = 0

    def work(linked: LinkedRoot) -> None:
        nonlocal done
        # Off for all is one mark, and leaves those of single roots; on for all takes them all away.
        if root is not None or on:
            linked.set_peers(on=on)
        done += 1
        reason = switched_off(linked, registry, os.environ)
        if as_json:
            json_line("peers", {"root": shown(linked.path), "uuid": linked.record.uuid, "lan_off": reason or None})
        else:
            note(f"peers of {shown(linked.path)}: {f'off {reason}' if reason else 'on'}")

    code = for_each(registry.chosen(root), work, alone=root is not None, as_json=as_json)
    told = control.reload(registry.socket)
    if as_json:
        json_line("summary", {"roots": done, "daemon": told})
    return code
