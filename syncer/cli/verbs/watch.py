"""`blocksync watch`: the daemon."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import time
from collections.abc import Collection, Mapping
from functools import partial

import click
import trio

from blockfs.runtime import logs
from blockfs.runtime.notify import ServiceManager
from syncer.cli.lan.attending import Attendance, attendance
from syncer.cli.paths import PATH
from syncer.cli.registry.config import read_settings
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.watching import Ports, Watcher
from syncer.cli.ui.recording import record
from syncer.remote.parallel import first_error
from syncer.watch import answers
from syncer.watch.daemon import Daemon, Damaged, Wanted
from syncer.watch.notices.events import Notify
from syncer.watch.notices.notifier import Notifier
from syncer.watch.page.process import serve_figures
from syncer.watch.root_task import Surroundings

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@click.command("watch")
@click.argument("roots", type=PATH, nargs=-1, metavar="[ROOT]…")
@click.option(
    "--watcher",
    type=click.Choice(["auto", "inotify", "watchdog"]),
    default="auto",
    show_default=True,
    help="How ordinary folders are watched.",
)
@click.option("--no-peers", is_flag=True, help="Neither ask devices on the network for blocks nor give them any.")
@click.option("--verbose", is_flag=True, help="Log each action.")
def command(roots: tuple[bytes, ...], watcher: Watcher, no_peers: bool, verbose: bool) -> None:
    """Keep the linked ROOTs (default: all) and their containers in the same state, until SIGTERM or Ctrl-C.

    One daemon serves all roots. `blocksync status --follow` shows how it stands, `blocksync pause ROOT` makes it leave
    one alone. SIGHUP reads again what is linked. Logs go to stderr as JSON lines.
    """
    logs.log_to(sys.stderr, level=logging.DEBUG if verbose else logging.INFO)
    registry = Registry(os.environ)
    named = {registry.get(root).record.uuid for root in roots}
    manager = ServiceManager(os.environ.pop("NOTIFY_SOCKET", None))
    watchdog_us = os.environ.pop("WATCHDOG_USEC", None)
    watchdog_s = int(watchdog_us) / 1e6 if watchdog_us is not None and watchdog_us.isdigit() else None
    listen = read_settings(os.environ).metrics.listen
    around = Surroundings(draw=random.random, wall_s=time.time, told=lambda: None)
    with registry.watching(), attendance(registry, os.environ, no_peers=no_peers) as on_lan:
        registered = partial(_registered, registry, named, watcher, on_lan, {})
        lan = None if on_lan is None else on_lan.lan
        notifier = Notifier(_notify, registry.notices, time.time, _environment(os.environ))
        # Where in its line a name stands is memory, too: 0.3 MB of what the page's process takes.
        page = (sys.executable, "-X", "no_debug_ranges", "-m", "syncer.cli.ui.child")
        beside = [partial(record, registry.volumes)]
        if listen:
            beside.append(partial(serve_figures, (*page, "--figures"), listen))
        daemon = Daemon(registered, around, manager, lan, page=page, notifier=notifier, beside=beside)

        try:
            trio.run(
                daemon.run,
                lambda: trio.open_signal_receiver(*_SIGNALS),
                partial(answers.serve, registry.socket),
                watchdog_s,
            )
        except BaseExceptionGroup as group:
            raise first_error(group) from group


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Of programs that tell of notices. A unit of the system has no XDG_RUNTIME_DIR, and there the desktop's bus is."""
    runtime = f"/run/user/{os.getuid()}"
    return {"XDG_RUNTIME_DIR": runtime, **own} if os.path.isdir(runtime) else dict(own)


def _notify() -> Notify:
    """What config.toml says of notices now."""
    return read_settings(os.environ).notify


def _registered(
    registry: Registry, named: Collection[str], watcher: Watcher, on_lan: Attendance | None, made: dict[str, Ports]
) -> list[Wanted | Damaged]:
    """What is linked now, of the roots with these UUIDs; empty: all."""
    linked = registry.look()
    roots = [root for root in linked.roots if not named or root.record.uuid in named]
    bad = [bad for bad in linked.bad if not named or bad.uuid in named]
    if on_lan is not None:
        on_lan.follow(roots)
    return [
        *(_wanted(root, watcher, on_lan, made) for root in roots),
        *(Damaged(uuid=each.uuid, record=each.path, detail=str(each.error)) for each in bad),
    ]


def _wanted(linked: LinkedRoot, watcher: Watcher, on_lan: Attendance | None, made: dict[str, Ports]) -> Wanted:
    """The same ports as before, unless the root was linked anew."""
    uuid = linked.record.uuid
    if uuid not in made or made[uuid].record != linked.record:
        made[uuid] = Ports(linked, watcher, on_lan)
    return Wanted(ports=made[uuid], paused=linked.paused)
