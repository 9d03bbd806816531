"""What this host allows for blocks from devices on the network, for `doctor`. Nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import trio

from blockfs.runtime.output import shown
from syncer.cli.config import read_settings
from syncer.cli.diagnosis import Check, Level
from syncer.cli.opening import key_keeper
from syncer.cli.peering import VARIABLE, is_silent, switched_off
from syncer.cli.roots import LinkedRoot, Registry
from syncer.errors import SyncerError
from syncer.peer.links import capability, host
from syncer.peer.links.interfaces import Facts, Verdict, verdicts
from syncer.peer.links.watching import interfaces
from syncer.peer.settings import Peers, Use
from syncer.peer.sharekey import mark_of
from syncer.peer.wire.carrier import Carrier
from syncer.remote.url import parse_url

_SUBJECT = "LAN"


def of_host(registry: Registry, environment: Mapping[str, str]) -> Iterator[Check]:
    """The interfaces, the right to send Ethernet frames, the battery, and what a firewall must let in."""
    try:
        settings = read_settings(environment).peers
        silent = is_silent(environment)
    except SyncerError as error:
        yield _check(Level.FAIL, str(error), "as it says")
        return
    if silent or registry.peers_off or not settings.enabled:
        by = f"{VARIABLE}=off" if silent else "`blocksync peers off`" if registry.peers_off else "`enabled = false`"
        yield _check(Level.OK, f"off by {by}: nothing is sent or heard")
        return
    try:
        found = interfaces()
    except OSError as error:
        yield _check(Level.WARN, f"the kernel does not tell its interfaces: {error.strerror}", "allow AF_NETLINK")
        return
    right = capability.held()
    metered = trio.run(host.metered, environment)
    carriers = [carrier for carrier in settings.carriers if carrier is not Carrier.ETHERNET or right]
    judged = verdicts(
        found, settings, carriers, lambda name: Facts(wireless=host.is_wireless(name), metered=metered.get(name))
    )
    yield of_interfaces(judged, settings)
    yield of_rights(settings, held=right)
    if host.is_on_battery():
        yield of_battery(settings.on_battery)


def of_interfaces(judged: list[Verdict], settings: Peers) -> Check:
    """Which interfaces are used, and why others are not."""
    used = [each.usable for each in judged if each.usable is not None]
    left = ", ".join(f"{each.interface.name} ({each.reason})" for each in judged if each.usable is None)
    if not used:
        text = f"no interface can be used: {left or 'there is none'}"
        return _check(Level.WARN, text, "blocks come from the server only; `interfaces` in config.toml names others")
    names = [
        each.interface.name + (" (Wi-Fi)" if each.wireless else "") + ("" if each.serves else " (asks only: metered)")
        for each in used
    ]
    text = f"used: {', '.join(names)}" + (f"; not used: {left}" if left else "")
    port = settings.port
    remedy = f"a firewall must let in UDP {port} and TCP {port} from the local network; what it does can't be seen here"
    return _check(Level.OK, text, remedy)


def of_rights(settings: Peers, *, held: bool) -> Check:
    """Whether this user may send Ethernet frames."""
    if Carrier.ETHERNET not in settings.carriers:
        return _check(Level.OK, "Ethernet frames are not among `carriers`")
    if held:
        return _check(Level.OK, "Ethernet frames may be sent (CAP_NET_RAW)")
    return _check(Level.OK, "no CAP_NET_RAW: UDP is used, which does as well")


def of_battery(use: Use) -> Check:
    """What becomes of it while the machine runs on its battery."""
    does = {Use.OFF: "nothing is asked or given", Use.ASK: "blocks are asked for, and none given", Use.ON: "as ever"}
    return _check(Level.OK, f"on battery: {does[use]} (on_battery)")


def of_root(root: LinkedRoot, registry: Registry, environment: Mapping[str, str]) -> Check:
    """Who is of its share."""
    try:
        off = switched_off(root, registry, environment)
    except SyncerError as error:
        return _check(Level.WARN, f"not known: {error}", "as it says")
    if off:
        return _check(Level.OK, f"off {off}")
    prefix = parse_url(root.record.url).prefix
    if prefix:
        share = f"the folder {shown(os.fsencode(prefix))}; roots of all of the container are of another"
    else:
        share = "all of the container; roots of a folder of it are of another"
    level, key, remedy = of_key(root)
    return _check(level, f"its share is {share}; {key}", remedy)


def of_key(root: LinkedRoot) -> tuple[Level, str, str]:
    """How it is with the key of a root's share, in words, and what to do."""
    try:
        kept = key_keeper(root).kept()
    except (SyncerError, OSError) as error:
        return Level.WARN, f"LAN off: {error}", "as it says"
    if kept.off:
        return Level.WARN, f"LAN off: {kept.off}", "until then blocks come from the server only"
    if kept.key is None:
        return Level.OK, "no key is known yet", "the next cycle that may write makes or reads it"
    origin = "made from a passphrase" if kept.passphrase else f"the one on the server (generation {kept.highest})"
    remedy = (
        "devices with another passphrase, or without it, are no peers: their mark differs" if kept.passphrase else ""
    )
    return Level.OK, f"its key is {origin}, mark {mark_of(kept.key.key)}", remedy


def _check(level: Level, text: str, remedy: str = "") -> Check:
    return Check(subject=_SUBJECT, level=level, text=text, remedy=remedy)
