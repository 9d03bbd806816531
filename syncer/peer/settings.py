"""What a machine is told about LAN peers: the table `[peers]` of `$XDG_CONFIG_HOME/blocksync/config.toml`.

Text in, settings out; who reads the file is elsewhere. What can't be understood is an error that names the key: a limit
with a typing error in its name would be no limit.

Source: docs/reference/config.md, which a test compares with the fields here.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from blockfs.errors import BlockfsError
from blockfs.runtime.units import parse_size
from syncer.errors import UsageError
from syncer.peer.wire.carrier import Carrier

PAGE: Final = "docs/reference/config.md"
_GROUPS: Final = ipaddress.IPv6Network("ff12::/16")
_PLACE: Final = re.compile(r"^(?P<said>.*?)(?: - at `\$\.(?P<place>.*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"unknown field `(?P<name>[^`]*)`")

_TYPES: Final = re.compile(r"`(\w+)`")
_WORDS: Final = {
    "int": "an integer",
    "str": "a string",
    "bool": "true or false",
    "object": "a table",
    "array": "an array",
}

Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
# From 0x0600 on, a number names what a frame carries; below, it is a length (IEEE 802.3).
EtherType = Annotated[int, msgspec.Meta(ge=0x0600, le=0xFFFF)]


class Use(StrEnum):
    """How far peers are used in some circumstance."""

    OFF = "off"
    ASK = "ask"
    ON = "on"


_CHOICES: Final[dict[str, type[StrEnum]]] = {"carriers": Carrier, "on_metered": Use, "on_battery": Use}


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


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    peers: Peers = Peers()


def parse(text: str, file: str) -> Settings:
    """Read a config.toml.

    Args:
        text: Its content; empty: all as it is by default.
        file: Its name, for messages.

    Raises:
        UsageError: No TOML, an unknown key, a value of the wrong type or out of range; names the file and the key.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}; correct that line or remove it") from None
    try:
        settings = msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        said, place = _located(str(error))
        raise _wrong(file, place, said) from None
    _check(settings.peers, file)
    return settings


def _located(message: str) -> tuple[str, str]:
    """What msgspec says, in the words of TOML, and the key that it is about."""
    match = _PLACE.match(message)
    assert match is not None
    place = match["place"] or ""
    unknown = _UNKNOWN.search(match["said"])
    if unknown:
        return "there is no such key", f"{place}.{unknown['name']}".lstrip(".")
    key = place.removeprefix("peers.").partition("[")[0]
    if key in _CHOICES and match["said"].startswith("Invalid enum"):
        return f"expected one of {', '.join(_CHOICES[key])}", place
    words = _TYPES.sub(lambda found: _WORDS.get(found[1], found[1]), match["said"])
    return words[:1].lower() + words[1:], place


def _check(peers: Peers, file: str) -> None:
    """What a type can't say."""
    try:
        is_group = ipaddress.IPv6Address(peers.group) in _GROUPS
    except ipaddress.AddressValueError:
        is_group = False
    if not is_group:
        raise _wrong(file, "peers.group", f"expected an IPv6 address of {_GROUPS}, got {peers.group!r}")
    if not peers.carriers:
        raise _wrong(file, "peers.carriers", "expected one at least (`enabled = false` switches peers off)")
    for key in ("upload_limit", "download_limit"):
        try:
            parse_size(getattr(peers, key))
        except BlockfsError:
            said = f'expected a size per second as "500KiB", or "0", got {getattr(peers, key)!r}'
            raise _wrong(file, f"peers.{key}", said) from None


def _wrong(file: str, place: str, said: str) -> UsageError:
    return UsageError(f"{file}: {place}: {said}; correct that key or remove it, {PAGE} has all of them")
