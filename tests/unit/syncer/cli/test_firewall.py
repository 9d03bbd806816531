"""What `doctor` concludes from rules of nftables: that the port is open, that it is closed, or that it can't tell."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from syncer.cli.doctor.firewall import Chain, Fate, Knock, closed_by

UDP = Knock(protocol="udp", port=17511, interface="eth0")
TCP = Knock(protocol="tcp", port=17511, interface="eth0")
INPUT = Chain(family="inet", table="filter", name="input")


def ruleset(
    *rules: list[Any], policy: str = "drop", more: tuple[dict[str, Any], ...] = (), family: str = "inet"
) -> Any:
    """One input chain with these rules."""
    where = {"family": family, "table": "filter"}
    chain = {**where, "name": "input", "type": "filter", "hook": "input", "prio": 0, "policy": policy}
    listed = [{"rule": {**where, "chain": "input", "expr": rule}} for rule in rules]
    return {"nftables": [{"metainfo": {}}, {"table": {**where, "name": "filter"}}, {"chain": chain}, *more, *listed]}


def dport(right: Any, protocol: str = "udp", op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": {"payload": {"protocol": protocol, "field": "dport"}}, "right": right}}


def meta(key: str, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": {"meta": {"key": key}}, "right": right}}


ACCEPT, DROP, REJECT = {"accept": None}, {"drop": None}, {"reject": {"type": "icmpx"}}
STATES = {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}
NEW = {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["new"]}}
NEAR = {
    "match": {
        "op": "==", "left": {"payload": {"protocol": "ip6", "field": "saddr"}},
        "right": {"prefix": {"addr": "fe80::", "len": 10}},
    }
}  # fmt: skip
FAR = json.loads(json.dumps(NEAR).replace("fe80::", "2001:db8::"))
SET = {"set": {"family": "inet", "table": "filter", "name": "ports", "elem": [80, {"range": [17000, 18000]}]}}
DEEPER = tuple(
    {"rule": {"family": "inet", "table": "filter", "chain": "deeper", "expr": rule}}
    for rule in ([dport(17511), ACCEPT], [{"return": None}])
)
LOOP = ({"rule": {"family": "inet", "table": "filter", "chain": "deeper", "expr": [{"jump": {"target": "deeper"}}]}},)


@pytest.mark.parametrize(
    "rules",
    [
        [[dport(17511), ACCEPT]],
        [[dport({"set": [80, 17511]}), {"counter": {}}, ACCEPT]],
        [[dport({"range": [17000, 18000]}), ACCEPT]],
        [[dport({"set": [{"elem": {"val": 17511, "counter": {}}}]}), ACCEPT]],
        [[dport(80, op="!="), ACCEPT]],
        [[meta("iifname", "eth0"), ACCEPT]],
        [[meta("iifname", {"set": ["wlan0", "eth*"]}), ACCEPT]],
        [[meta("l4proto", "udp"), ACCEPT]],
        [[meta("nfproto", "ipv6"), NEW, dport(17511, "th"), ACCEPT]],
        [[NEAR, dport(17511), ACCEPT], [DROP]],
        [[dport(17511, "tcp"), DROP], [ACCEPT]],
    ],
)
def test_a_port_that_is_let_in_is_open(rules: list[Any]) -> None:
    assert closed_by(ruleset(*rules), UDP) is Fate.IN


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [[STATES, ACCEPT], [meta("iifname", "lo"), ACCEPT]],
        [[dport(17511, "tcp"), ACCEPT]],
        [[dport({"range": [1, 1024]}), ACCEPT], [REJECT]],
        [[dport(17511), DROP], [ACCEPT]],
        [
            [
                {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.1"}},
                ACCEPT,
            ]
        ],
        [[{"log": {}}, {"counter": {}}, REJECT], [ACCEPT]],
        [[FAR, DROP], [DROP], [ACCEPT]],
    ],
)
def test_a_port_that_is_surely_kept_out_is_closed_by_a_chain_that_is_named(rules: list[Any]) -> None:
    assert closed_by(ruleset(*rules), UDP) == INPUT
    assert str(INPUT) == "inet filter input"


@pytest.mark.parametrize(
    "rules",
    [
        [[FAR, ACCEPT]],
        [[{"xt": {"type": "match", "name": "addrtype"}}, ACCEPT]],
        [[{"limit": {"rate": 3}}, ACCEPT]],
        [[{"vmap": {"key": {}, "data": {}}}]],
        [[{"queue": {}}]],
    ],
)
def test_what_is_not_understood_is_not_said_to_be_closed_by(rules: list[Any]) -> None:
    assert closed_by(ruleset(*rules), UDP) is Fate.UNKNOWN


def test_a_rule_that_may_keep_out_is_passed_over() -> None:
    assert closed_by(ruleset([FAR, DROP], [dport(17511), ACCEPT]), UDP) is Fate.IN
    assert closed_by(ruleset([{"limit": {}}, DROP], policy="accept"), UDP) is Fate.IN


def test_jumps_are_followed_and_sets_looked_up() -> None:
    jump = [{"jump": {"target": "deeper"}}]
    assert closed_by(ruleset(jump, more=DEEPER), UDP) is Fate.IN
    assert closed_by(ruleset(jump, more=DEEPER), TCP) == INPUT
    assert closed_by(ruleset([dport("@ports"), ACCEPT], more=(SET,)), UDP) is Fate.IN
    assert closed_by(ruleset([dport("@nothing"), ACCEPT], more=(SET,)), UDP) == INPUT
    assert closed_by(ruleset(jump, more=LOOP), UDP) is Fate.UNKNOWN


def test_chains_of_ipv4_alone_and_of_other_hooks_do_not_count() -> None:
    assert closed_by(ruleset(family="ip"), UDP) is Fate.IN
    assert closed_by({"nftables": []}, UDP) is Fate.IN


@pytest.mark.parametrize(
    "rubbish", [None, [], "x", {"nftables": 3}, {"nftables": [3, {"rule": 4}, {"chain": {"hook": "input"}}]}]
)
def test_rubbish_is_no_error(rubbish: Any) -> None:
    assert closed_by(rubbish, UDP) is Fate.IN


def test_what_nft_prints_is_understood() -> None:
    """The rules above are written by hand; these are made by the kernel."""
    assert shutil.which("nft"), "nft is not installed (Debian: nftables)"
    text = """
table inet filter {
  set ports { type inet_service; flags interval; elements = { 80, 17000-18000 }
  }
  chain deeper {
    tcp dport 22 accept
    udp dport @ports accept
  }
  chain input {
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iifname "lo" accept
    jump deeper
    counter reject
  }
}
"""
    listed = subprocess.run(
        ["unshare", "--net", "sh", "-c", "nft -f - && nft -j list ruleset"], input=text, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert closed_by(json.loads(listed.stdout), UDP) is Fate.IN
    assert closed_by(json.loads(listed.stdout), TCP) == INPUT
