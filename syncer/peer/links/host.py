"""What the machine says of its interfaces and its power: Wi-Fi and battery by sysfs(5), metered by NetworkManager."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

import trio

SYS: Final = "/sys/class"
NMCLI: Final = ("nmcli", "--terse", "--fields", "GENERAL.DEVICE,GENERAL.METERED", "device", "show")
NMCLI_S: Final = 5.0


def is_wireless(name: str, sys: str = SYS) -> bool:
    """Whether an interface is Wi-Fi. A name with a slash or of the parent folder is none of an interface."""
    if "/" in name or name in {"", ".", ".."}:
        return False
    return any(os.path.exists(os.path.join(sys, "net", name, mark)) for mark in ("wireless", "phy80211"))


def is_on_battery(sys: str = SYS) -> bool:
    """Whether the machine runs on a battery: one is being emptied, and nothing that feeds it is plugged in.

    Batteries of mice and keyboards (scope Device) do not count.
    """
    folder = os.path.join(sys, "power_supply")
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    supplies = [{key: _line(folder, name, key) for key in ("type", "scope", "online", "status")} for name in names]
    supplies = [supply for supply in supplies if supply["scope"] != "Device"]
    fed = any(supply["type"] not in {"Battery", "UPS"} and supply["online"] not in {"", "0"} for supply in supplies)
    drained = any(supply["type"] in {"Battery", "UPS"} and supply["status"] == "Discharging" for supply in supplies)
    return drained and not fed


async def metered(environment: Mapping[str, str]) -> dict[str, bool]:
    """Which interfaces NetworkManager counts as metered or not; others are left out."""
    program = shutil.which(NMCLI[0], path=environment.get("PATH"))
    if program is None:
        return {}
    done = None
    with trio.move_on_after(NMCLI_S), contextlib.suppress(OSError):
        done = await trio.run_process(
            [program, *NMCLI[1:]],
            env={**environment, "LC_ALL": "C"},
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    return parse_metered(done.stdout.decode(errors="replace")) if done is not None else {}


def parse_metered(text: str) -> dict[str, bool]:
    """Read what nmcli prints: a line for each field, an empty line between devices."""
    found = {}
    device = ""
    for line in text.splitlines():
        field, _, value = line.partition(":")
        if field == "GENERAL.DEVICE":
            device = value
        elif field == "GENERAL.METERED" and value.split(" ")[0] in {"yes", "no"}:  # "yes (guessed)" is a yes
            found[device] = value.startswith("yes")
    return found


def _line(folder: str, name: str, key: str) -> str:
    try:
        with open(os.path.join(folder, name, key), encoding="ascii", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
