"""`blocksync peers`: devices on the network that blocks come from, and whether there are any."""

from __future__ import annotations

import importlib
import os

import click
import trio

from blockfs.cli.groups import Verbs
from blockfs.runtime.output import json_line, note, shown
from blockfs.runtime.units import counted
from syncer.cli.lan.peering import switched_off
from syncer.cli.output.peers import follow as follow_peers
from syncer.cli.output.peers import show
from syncer.cli.passphrase import read_passphrase
from syncer.cli.paths import PATH
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.many_roots import for_each
from syncer.cli.session.opening import key_keeper, open_share
from syncer.errors import ForbiddenError, NotFoundError, UsageError
from syncer.peer.sharekey import mark_of
from syncer.remote.url import parse_url
from syncer.watch import control

_JSON_HELP = "Print one JSON object per root, and a summary."


@click.group("peers", cls=Verbs, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.option("--follow", is_flag=True, help="Show it live, until Ctrl-C.")
@click.option("--metrics", "as_metrics", is_flag=True, help="Print all figures in the text format of Prometheus.")
@click.pass_context
def command(context: click.Context, as_json: bool, follow: bool, as_metrics: bool) -> None:
    """Show which devices on the network `blocksync watch` gets blocks from, or decide whether it does."""
    if context.invoked_subcommand is not None:
        if as_json or follow or as_metrics:
            raise UsageError(f"give --json, --follow and --metrics after {context.invoked_subcommand}, if it has them")
        return
    if as_metrics and (as_json or follow):
        raise UsageError("--metrics is text for Prometheus: it goes with neither --json nor --follow")
    socket = Registry(os.environ).socket
    if as_metrics:
        # Loaded where it is asked for: the library is dear, and no other verb wants it.
        metrics = importlib.import_module("syncer.cli.output.metrics")
        click.echo(metrics.exposition(control.peers(socket)), nl=False)
    elif follow:
        follow_peers(socket, as_json=as_json)
    else:
        show(socket, as_json=as_json)


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


@command.command("unban")
@click.argument("peer", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def unban_command(peer: str | None, as_json: bool) -> None:
    """Take blocks again from PEER (default: all devices that sent wrong ones). A ban ends by itself after an hour.

    PEER is an address or the beginning of an id, as `peers` shows them.
    """
    lifted = control.unban(Registry(os.environ).socket, peer or "")
    if peer and not lifted:
        raise NotFoundError(f"nobody called {peer} is banned; `blocksync peers` lists who is")
    if as_json:
        json_line("unban", {"lifted": lifted})
    else:
        note(f"{counted(lifted, 'ban', 'bans')} lifted")


@command.command("rotate")
@click.argument("root", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rotate_command(root: bytes, as_json: bool) -> None:
    """Give ROOT's share a new key: for when somebody may no longer read it. The old one counts for 24 hours more."""
    registry = Registry(os.environ)
    linked = registry.get(root)
    _refuse_repository(linked, "a key can't be locked out of it: see docs/guide/repository.md about lost devices")
    generation = trio.run(_rotate, linked)
    told = control.reload(registry.socket)
    if as_json:
        json_line("rotate", {"root": shown(linked.path), "generation": generation, "daemon": told})
    else:
        note(f"the share of {shown(linked.path)} has a new key; the old one counts for 24 hours more")


@command.command("passphrase")
@click.argument("root", type=PATH)
@click.option("--file", type=click.Path(dir_okay=False), help="Read it from there; -: standard input.")
@click.option("--clear", is_flag=True, help="Take the key on the server again.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def passphrase_command(root: bytes, file: str | None, clear: bool, as_json: bool) -> None:
    """Make the key of ROOT's share from a passphrase, the same on each device, instead of the key on the server.

    It is asked for on the terminal, or read from standard input where that is none.
    """
    registry = Registry(os.environ)
    linked = registry.get(root)
    _refuse_repository(linked, "the storage never sees it, so no passphrase of its own is needed")
    keeper = key_keeper(linked)
    if clear:
        if file is not None:
            raise UsageError("--clear needs no passphrase; leave --file away")
        if not keeper.forget_passphrase():
            raise UsageError(f"{shown(linked.path)} has no passphrase: its share's key is the one on the server")
        mark, done = None, "takes the share's key on the server again, with its next cycle"
    else:
        url = parse_url(linked.record.url)
        made = keeper.use_passphrase(read_passphrase(file), url.account, url.container, url.prefix)
        assert made.key is not None
        mark = mark_of(made.key.key)
        done = f"has a key made from the passphrase; its mark is {mark}, on each device with the same passphrase"
    told = control.reload(registry.socket)
    if clear:
        control.sync(registry.socket, linked.record.uuid)  # the daemon reads the key in a cycle; none might come soon
    if as_json:
        json_line("passphrase", {"root": shown(linked.path), "set": not clear, "mark": mark, "daemon": told})
    else:
        note(f"{shown(linked.path)} {done}")


async def _rotate(linked: LinkedRoot) -> int:
    remote = open_share(linked)
    try:
        kept = await key_keeper(linked).rotate(remote)
    except ForbiddenError as error:
        why = "the token of this root may not write to its share; rotate on a device whose token may"
        raise ForbiddenError(f"{shown(linked.path)}: {why} ({error})") from error
    finally:
        await remote.close()
    return kept.highest


def _refuse_repository(linked: LinkedRoot, why: str) -> None:
    """The key of a repository's share is none that anybody sets."""
    if linked.in_repository:
        text = f"{shown(linked.path)} is in a repository: the key of its share comes from the repository's key; {why}"
        raise UsageError(text)


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
    keyless: list[str] = []  # a daemon reads the key in a cycle, and none might come soon

    def work(linked: LinkedRoot) -> None:
        nonlocal done
        # Off for all is one mark, and leaves those of single roots; on for all takes them all away.
        if root is not None or on:
            linked.set_peers(on=on)
            if on and not linked.in_repository and not os.path.exists(linked.lan_key):
                keyless.append(linked.record.uuid)
        done += 1
        reason = switched_off(linked, registry, os.environ)
        if as_json:
            json_line("lan", {"root": shown(linked.path), "uuid": linked.record.uuid, "lan_off": reason or None})
        else:
            note(f"peers of {shown(linked.path)}: {f'off {reason}' if reason else 'on'}")

    code = for_each(registry.chosen(root), work, alone=root is not None, as_json=as_json)
    told = control.reload(registry.socket)
    for uuid in keyless:
        control.sync(registry.socket, uuid)
    if as_json:
        json_line("summary", {"roots": done, "daemon": told})
    return code
