"""What a firewall does with a frame or a connection of a neighbour, as far as its rules tell. Pure.

The rules are nftables', as `nft -j list ruleset` prints them. What this does not understand may be so or not: then the
answer is that it can't be told, and never that something is blocked.

Source: libnftables-json(5).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from blockfs.runtime.output import JsonValue

_NEIGHBOUR: Final = ipaddress.IPv6Address("fe80::1")
_IGNORED: Final = frozenset({"counter", "log", "comment"})  # statements that decide nothing
_OTHERS: Final = frozenset({"ip", "icmp", "icmpv6", "igmp", "sctp"})  # protocols that the packet has not
_FAMILIES: Final = frozenset({"inet", "ip6"})
_DEPTH: Final = 16  # the kernel's own limit of jumps


class Fate(Enum):
    """What becomes of it."""

    IN = "in"
    OUT = "out"  # surely
    UNKNOWN = "unknown"
    ON = "on"  # no rule decided it


class Knock(msgspec.Struct, frozen=True, kw_only=True):
    """The first packet of a neighbour, over IPv6.

    Attributes:
        protocol: "udp" or "tcp".
        port: Here.
        interface: By which it comes.
    """

    protocol: str
    port: int
    interface: str


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that packets to this machine pass first."""

    family: str
    table: str
    name: str

    def __str__(self) -> str:
        """As nft takes it."""
        return f"{self.family} {self.table} {self.name}"


def closed_by(ruleset: JsonValue, knock: Knock) -> Chain | Fate:
    """Which chain keeps a packet out.

    Returns:
        The first one that surely does; else IN or UNKNOWN.
    """
    rules = _Rules(ruleset)
    fates = [(chain, rules.fate(chain, policy, knock)) for chain, policy in rules.inputs]
    for chain, fate in fates:
        if fate is Fate.OUT:
            return chain
    return Fate.UNKNOWN if any(fate is Fate.UNKNOWN for _, fate in fates) else Fate.IN


class _Rules:
    """A ruleset by its chains."""

    def __init__(self, ruleset: JsonValue) -> None:
        self.inputs: list[tuple[Chain, str]] = []
        self._rules: dict[Chain, list[list[JsonValue]]] = {}
        self._sets: dict[tuple[str, str, str], JsonValue] = {}
        for item in _list(_dict(ruleset).get("nftables")):
            for kind, raw in _dict(item).items():
                self._add(kind, _dict(raw))

    def _add(self, kind: str, fields: Mapping[str, JsonValue]) -> None:
        family, table = str(fields.get("family")), str(fields.get("table"))
        if kind == "set":
            self._sets[family, table, str(fields.get("name"))] = fields.get("elem")
        elif kind == "chain":
            chain = Chain(family=family, table=table, name=str(fields.get("name")))
            if fields.get("hook") == "input" and fields.get("type") == "filter" and family in _FAMILIES:
                self.inputs.append((chain, str(fields.get("policy", "accept"))))
        elif kind == "rule":
            chain = Chain(family=family, table=table, name=str(fields.get("chain")))
            self._rules.setdefault(chain, []).append(_list(fields.get("expr")))

    def fate(self, chain: Chain, policy: str, knock: Knock) -> Fate:
        """What a base chain does with it."""
        found = self._walk(chain, knock, _DEPTH)
        if found is Fate.ON:
            return Fate.OUT if policy == "drop" else Fate.IN
        return found

    def _walk(self, chain: Chain, knock: Knock, depth: int) -> Fate:
        """UNKNOWN as soon as a rule may let it in and we can't tell; a rule that may keep it out is passed over."""
        if not depth:
            return Fate.UNKNOWN
        for rule in self._rules.get(chain, []):
            fate = self._rule(chain, rule, knock, depth)
            if fate is not Fate.ON:
                return fate
        return Fate.ON

    def _rule(self, chain: Chain, rule: Iterable[JsonValue], knock: Knock, depth: int) -> Fate:
        sure = True
        for statement in rule:
            for kind, raw in _dict(statement).items():
                if kind in _IGNORED:
                    continue
                if kind == "match":
                    matches = self._matches(chain, _dict(raw), knock)
                    if matches is False:
                        return Fate.ON
                    sure = sure and matches is True
                    continue
                fate = self._verdict(chain, kind, raw, knock, depth)
                if fate is None:
                    sure = False
                    continue
                return fate if sure or fate is Fate.ON else Fate.ON if fate is Fate.OUT else Fate.UNKNOWN
        return Fate.ON

    def _verdict(self, chain: Chain, kind: str, raw: JsonValue, knock: Knock, depth: int) -> Fate | None:
        """None: no verdict, but a statement that we do not know."""
        match kind:
            case "accept":
                return Fate.IN
            case "drop" | "reject":
                return Fate.OUT
            case "jump" | "goto":
                target = Chain(family=chain.family, table=chain.table, name=str(_dict(raw).get("target")))
                return self._walk(target, knock, depth - 1)
            case "return" | "continue":
                return Fate.ON
            case "vmap" | "queue":
                return Fate.UNKNOWN
        return None

    def _matches(self, chain: Chain, fields: Mapping[str, JsonValue], knock: Knock) -> bool | None:
        """Whether a match holds; None: it can't be told."""
        left, right = _dict(fields.get("left")), fields.get("right")
        if isinstance(right, str) and right.startswith("@"):
            right = {"set": self._sets.get((chain.family, chain.table, right[1:]))}
        found = _compared(left, right, knock)
        return found if found is None or fields.get("op") != "!=" else not found


def _compared(left: Mapping[str, JsonValue], right: JsonValue, knock: Knock) -> bool | None:
    payload = _dict(left.get("payload"))
    if payload:
        return _in_packet(payload.get("protocol"), payload.get("field"), right, knock)
    known = {"iifname": knock.interface, "l4proto": knock.protocol, "nfproto": "ipv6"}
    key = str(_dict(left.get("meta")).get("key"))
    if key in known:
        return _has(right, known[key])
    if _dict(left.get("ct")).get("key") == "state":
        return _has({"set": right} if isinstance(right, list) else right, "new")
    return None


def _in_packet(protocol: JsonValue, field: JsonValue, right: JsonValue, knock: Knock) -> bool | None:
    if protocol in _OTHERS or (protocol in {"udp", "tcp"} and protocol != knock.protocol):
        return False
    if protocol in {knock.protocol, "th"} and field == "dport":
        return _has(right, knock.port)
    return True if (protocol, field) == ("ip6", "saddr") and _is_near(right) else None


def _has(right: JsonValue, value: str | int) -> bool:
    """Whether a value is what a rule names: it, a set with it, or a range around it."""
    if isinstance(right, dict):
        if "set" in right:
            return any(_has(each, value) for each in _list(right["set"]))
        if "range" in right:
            ends = _list(right["range"])
            return isinstance(value, int) and _is_between(ends, value)
        if "elem" in right:
            return _has(_dict(right["elem"]).get("val"), value)
        return False
    if isinstance(right, str) and isinstance(value, str):
        return fnmatchcase(value, right)
    return right == value


def _is_between(ends: Sequence[JsonValue], value: int) -> bool:
    match ends:
        case [int(first), int(last)]:
            return first <= value <= last
    return False


def _is_near(right: JsonValue) -> bool:
    """Whether a neighbour's link-local address is among these."""
    prefix = _dict(_dict(right).get("prefix"))
    try:
        return _NEIGHBOUR in ipaddress.IPv6Network(f"{prefix.get('addr')}/{prefix.get('len')}")
    except ValueError:
        return False


def _dict(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
