"""Which interfaces are used. Pure.

A wire to other machines: up, Ethernet or Wi-Fi. No tunnel, for who is at its other end is not near; no member of a
bridge or a bond, which is used itself; no bridge without a wire, as Docker and libvirt make them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from syncer.peer.links.rtnetlink import ETHERNET, LOOPBACK, POINTOPOINT, RUNNING, UP, Interface
from syncer.peer.session.neighbours import is_near
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.carrier import Carrier
from syncer.peer.wire.frames import BUCKETS, body_bound

_UNWIRED: Final = frozenset({"tun", "dummy", "ifb", "wireguard", "vxlan", "geneve", "gretap", "ip6gretap", "nlmon"})
_GUESTS: Final = frozenset({"veth", "tun"})  # members of a bridge that lead to containers and virtual machines
_LINK_LOCAL: Final = b"\xfe\x80"
_MAPPED: Final = bytes(10) + b"\xff\xff"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an interface that rtnetlink does not tell.

    Attributes:
        wireless: It is Wi-Fi.
        metered: Traffic costs; None: nobody says.
    """

    wireless: bool = False
    metered: bool | None = None


class Usable(msgspec.Struct, frozen=True, kw_only=True):
    """An interface that is used.

    Attributes:
        interface: Which.
        carriers: What carries frames on it, the best first; not empty.
        wireless: Broadcasts are dear.
        metered: Traffic costs.
        use: ON; ASK: nobody is served.
    """

    interface: Interface
    carriers: tuple[Carrier, ...]
    wireless: bool
    metered: bool
    use: Use

    @property
    def serves(self) -> bool:
        """Whether peers may fetch from us by it."""
        return self.use is Use.ON

    @property
    def addresses(self) -> tuple[bytes, ...]:
        """Where it can be reached from its wire, 16 bytes each, link-local first: no router is needed for that."""
        near = filter(is_near, self.interface.addresses)
        return tuple(sorted(near, key=lambda address: not address.startswith(_LINK_LOCAL)))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is made of one interface.

    Attributes:
        interface: Which.
        usable: How it is used; None: it is not.
        reason: Why it is not used; empty: it is.
    """

    interface: Interface
    usable: Usable | None = None
    reason: str = ""


def usable(
    found: Sequence[Interface], settings: Peers, opened: Iterable[Carrier], facts: Callable[[str], Facts]
) -> list[Usable]:
    """Those that are used; arguments as of `verdicts`."""
    return [each.usable for each in verdicts(found, settings, opened, facts) if each.usable is not None]


def verdicts(
    found: Sequence[Interface], settings: Peers, opened: Iterable[Carrier], facts: Callable[[str], Facts]
) -> list[Verdict]:
    """What is made of each interface, and why; also for `doctor`.

    Args:
        found: All there are.
        settings: What the user said.
        opened: Carriers that this process has.
        facts: Of an interface, by name.
    """
    carriers = tuple(opened)
    told = []
    for interface in found:
        reason = _why_not(interface, found, settings)
        verdict = Verdict(interface=interface, reason=reason) if reason else None
        told.append(verdict or _judged(interface, settings, carriers, facts(interface.name)))
    return told


def _why_not(interface: Interface, found: Sequence[Interface], settings: Peers) -> str:
    """Why an interface is none to look at more closely; empty: it may be used."""
    never = {
        "a loopback": bool(interface.flags & LOOPBACK),
        "down, or without a cable": interface.flags & (UP | RUNNING) != UP | RUNNING,
        "no Ethernet": interface.hardware != ETHERNET or bool(interface.flags & POINTOPOINT),
        "one of ignored_interfaces": _matches(interface.name, settings.ignored_interfaces),
    }
    if any(never.values()):
        return next(reason for reason, holds in never.items() if holds)
    if settings.interfaces:
        return "" if _matches(interface.name, settings.interfaces) else "not one of interfaces"
    default = {
        "a member of a bridge or bond": interface.master != 0,
        "a tunnel, or leads nowhere": interface.kind in _UNWIRED,
        "a bridge without a wire": interface.kind == "bridge" and not _is_wired(interface, found),
    }
    return next((reason for reason, holds in default.items() if holds), "")


def _is_wired(bridge: Interface, found: Sequence[Interface]) -> bool:
    return any(each.master == bridge.index and each.kind not in _GUESTS for each in found)


def _judged(interface: Interface, settings: Peers, opened: Sequence[Carrier], facts: Facts) -> Verdict:
    metered = facts.metered
    if metered is None:
        metered = _matches(interface.name, settings.metered_interfaces)
    use = settings.on_metered if metered else Use.ON
    possible = {
        Carrier.ETHERNET: True,
        Carrier.UDP6: any(address.startswith(_LINK_LOCAL) for address in interface.addresses),
        Carrier.UDP4: any(address.startswith(_MAPPED) for address in interface.addresses),
    }
    carriers = tuple(
        carrier
        for carrier in settings.carriers
        if carrier in opened and possible[carrier] and body_bound(interface.mtu, carrier) >= BUCKETS[0]
    )
    if use is Use.OFF:
        return Verdict(interface=interface, reason="metered, and on_metered is off")
    if not carriers:
        return Verdict(interface=interface, reason="none of the carriers can be used on it")
    used = Usable(interface=interface, carriers=carriers, wireless=facts.wireless, metered=metered, use=use)
    return Verdict(interface=interface, usable=used)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
