"""What a machine is told about LAN peers: the table `[peers]` of config.toml. The whole file: `cli.registry.settings`.

Source: docs/reference/config.md, which a test compares with the fields here.
"""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from blockfs.errors import BlockfsError
from blockfs.runtime.units import parse_size
from syncer.peer.wire.carrier import Carrier

_GROUPS: Final = ipaddress.IPv6Network("ff12::/16")
Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
# From 0x0600 on, a number names what a frame carries; below, it is a length (IEEE 802.3).
EtherType = Annotated[int, msgspec.Meta(ge=0x0600, le=0xFFFF)]


class Use(StrEnum):
    """How far peers are used in some circumstance."""

    OFF = "off"
    ASK = "ask"
    ON = "on"


CHOICES: Final[dict[str, type[StrEnum]]] = {"carriers": Carrier, "on_metered": Use, "on_battery": Use}
"""Keys whose values are words of a closed set."""


class Peers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[peers]`.

    Attributes:
        enabled: False: no socket is opened, no frame is sent or read.
        carriers: What may carry frames; the first that an interface allows is used, the others are listened to.
        ethertype: Of our Ethernet frames.
        port: UDP, and TCP as the first choice.
        group: IPv6 multicast group of the UDP frames; transient and link-local.
        interfaces: Patterns of names. Not empty: only these, also those that would be left out.
        ignored_interfaces: Patterns of names that are never used.
        metered_interfaces: Patterns of names that count as metered where NetworkManager does not say.
        on_metered: On metered interfaces.
        on_battery: As long as the machine runs on its battery.
        upload_limit: Bytes per second to all peers together, a size as "500KiB"; "0": no limit.
        download_limit: Bytes per second from all peers together.
        uploads: Blocks sent at once; who asks for more is told to come again.
    """

    enabled: bool = True
    carriers: tuple[Carrier, ...] = (Carrier.ETHERNET, Carrier.UDP6, Carrier.UDP4)
    ethertype: EtherType = 0x88B5  # local experimental, IEEE 802a-2003
    port: Port = 17_511
    group: str = "ff12::b5b1:c"
    interfaces: tuple[str, ...] = ()
    ignored_interfaces: tuple[str, ...] = ()
    metered_interfaces: tuple[str, ...] = ()
    on_metered: Use = Use.OFF
    on_battery: Use = Use.ASK
    upload_limit: str = "0"
    download_limit: str = "0"
    uploads: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4

    @property
    def upload_bytes_per_s(self) -> int | None:
        """None: no limit."""
        return parse_size(self.upload_limit) or None

    @property
    def download_bytes_per_s(self) -> int | None:
        """None: no limit."""
        return parse_size(self.download_limit) or None


def objection(peers: Peers) -> tuple[str, str] | None:
    """What is wrong with settings that a type can't say: the key, and what was expected. None: nothing."""
    try:
        is_group = ipaddress.IPv6Address(peers.group) in _GROUPS
    except ipaddress.AddressValueError:
        is_group = False
    if not is_group:
        return "group", f"expected an IPv6 address of {_GROUPS}, got {peers.group!r}"
    if not peers.carriers:
        return "carriers", "expected one at least (`enabled = false` switches peers off)"
    for key in ("upload_limit", "download_limit"):
        try:
            parse_size(getattr(peers, key))
        except BlockfsError:
            return key, f'expected a size per second as "500KiB", or "0", got {getattr(peers, key)!r}'
    return None
