"""What this host allows for blocks from devices on the network, for `doctor`. Nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import trio

from blockfs.runtime.output import JsonValue, shown
from syncer.cli.doctor.diagnosis import Check, Level
from syncer.cli.doctor.firewall import Chain, Fate, Knock, closed_by
from syncer.cli.doctor.hostfirewall import firewall_manager, nft_rules
from syncer.cli.lan.peering import VARIABLE, is_silent, switched_off
from syncer.cli.registry.config import read_settings
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import key_of_share
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
    """The interfaces, the firewall, the right to send Ethernet frames, and the battery."""
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
    yield of_interfaces(judged)
    used = [each.interface.name for each in judged if each.usable is not None]
    if used:
        yield of_firewall(nft_rules(), firewall_manager(), used, settings.port)
    yield of_rights(settings, held=right)
    if host.is_on_battery():
        yield of_battery(settings.on_battery)


def of_interfaces(judged: list[Verdict]) -> Check:
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
    wireless = "many access points keep their clients apart, then peers on Wi-Fi do not find each other"
    return _check(Level.OK, text, wireless if any(each.wireless for each in used) else "")


def of_firewall(ruleset: JsonValue, manager: str, interfaces: Sequence[str], port: int) -> Check:
    """Whether neighbours can get in.

    Args:
        ruleset: What nftables has; None: it can't be seen.
        manager: Who makes the rules: "ufw", "firewalld" or nobody.
        interfaces: Names of those in use.
        port: UDP and TCP.
    """
    needed = f"UDP {port} and TCP {port} from the local network"
    knocks = [Knock(protocol=each, port=port, interface=name) for each in ("udp", "tcp") for name in interfaces]
    found = [(knock, closed_by(ruleset, knock)) for knock in knocks]
    shut = [(knock, by) for knock, by in found if isinstance(by, Chain)]
    if ruleset is None or (not shut and any(by is Fate.UNKNOWN for _, by in found)):
        there = f"{manager} runs; " if manager else ""
        return _check(
            Level.OK, f"{there}whether a firewall lets in {needed} can't be told", _let_in(manager, port, None)
        )
    if not shut:
        return _check(Level.OK, f"the firewall lets in {needed}, as far as nftables' rules tell")
    _, by = shut[0]
    what = ", ".join(f"{knock.protocol.upper()} {port} on {knock.interface}" for knock, _ in shut)
    return _check(Level.WARN, f"the firewall keeps out {what} (nftables, chain {by})", _let_in(manager, port, by))


def _let_in(manager: str, port: int, by: Chain | None) -> str:
    """How to open it, for who makes the rules here."""
    if manager == "ufw":
        return f"`ufw allow {port}`, or only for an interface: `ufw allow in on eth0 to any port {port}`"
    if manager == "firewalld":
        return f"`firewall-cmd --permanent --add-port={port}/udp --add-port={port}/tcp`, `firewall-cmd --reload`"
    if by is not None and by.name.isupper():
        return " and ".join(f"`ip6tables -I {by.name} -p {each} --dport {port} -j ACCEPT`" for each in ("udp", "tcp"))
    if by is not None:
        return " and ".join(f"`nft insert rule {by} {each} dport {port} accept`" for each in ("udp", "tcp"))
    return "root is told more; docs/guide/lan.md has the lines for ufw, firewalld and nftables"


def of_rights(settings: Peers, *, held: bool) -> Check:
    """Whether this user may send Ethernet frames. A daemon of the system has rights of its own."""
    if Carrier.ETHERNET not in settings.carriers:
        return _check(Level.OK, "Ethernet frames are not among `carriers`")
    if held:
        return _check(Level.OK, "Ethernet frames may be sent by what you start (CAP_NET_RAW)")
    text = "no CAP_NET_RAW: what you start uses UDP, which does as well; blocksync-watch@USER has its own right"
    return _check(Level.OK, text)


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
    prefix = "" if root.in_repository else parse_url(root.record.url).prefix
    if root.in_repository:
        share = "the repository"
    elif prefix:
        share = f"the folder {shown(os.fsencode(prefix))}; roots of all of the container are of another"
    else:
        share = "all of the container; roots of a folder of it are of another"
    level, key, remedy = of_key(root)
    return _check(level, f"its share is {share}; {key}", remedy)


def of_key(root: LinkedRoot) -> tuple[Level, str, str]:
    """How it is with the key of a root's share, in words, and what to do."""
    try:
        kept = key_of_share(root).kept()
    except (SyncerError, OSError) as error:
        return Level.WARN, f"LAN off: {error}", "as it says"
    if kept.off:
        return Level.WARN, f"LAN off: {kept.off}", "until then blocks come from the server only"
    if kept.key is None:
        return Level.OK, "no key is known yet", "the next cycle that may write makes or reads it"
    origin = f"the one on the server (generation {kept.highest})"
    if root.in_repository:
        origin = "derived from the repository's"
    elif kept.passphrase:
        origin = "made from a passphrase"
    remedy = (
        "devices with another passphrase, or without it, are no peers: their mark differs" if kept.passphrase else ""
    )
    return Level.OK, f"its key is {origin}, mark {mark_of(kept.key.key)}", remedy


def _check(level: Level, text: str, remedy: str = "") -> Check:
    return Check(subject=_SUBJECT, level=level, text=text, remedy=remedy)
