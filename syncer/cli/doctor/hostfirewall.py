"""What this host tells of its firewall. Nothing is changed; who is not root is told little."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

import msgspec

from blockfs.runtime.output import JsonValue

_PATIENCE_S: Final = 10.0
_UFW: Final = "/etc/ufw/ufw.conf"
_LEGACY: Final = "/proc/net/ip6_tables_names"


def nft_rules() -> JsonValue:
    """What `nft -j list ruleset` prints; None: no nft, it is not allowed, or there are rules that it does not see."""
    program = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
    if program is None or _has_legacy_rules():
        return None
    command = [program, "--json", "list", "ruleset"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_PATIENCE_S)  # noqa: S603 - a constant
        rules: JsonValue = msgspec.json.decode(done.stdout)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return None
    return rules


def firewall_manager() -> str:
    """Who makes the rules: "ufw" or "firewalld", if one of them is at work; else empty."""
    try:
        with open(_UFW, encoding="utf-8", errors="replace") as file:
            if any(line.split("#")[0].strip().lower() == "enabled=yes" for line in file):
                return "ufw"
    except OSError:
        pass
    return "firewalld" if any(_comm(pid) == "firewalld" for pid in os.listdir("/proc") if pid.isdigit()) else ""


def _has_legacy_rules() -> bool:
    """Of iptables as it was before nftables, which nft does not show."""
    try:
        with open(_LEGACY, encoding="ascii") as file:
            return bool(file.read().split())
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it can't be seen


def _comm(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
