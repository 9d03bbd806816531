"""Whether a mount can be native, as far as this process is concerned. What volume and kernel say comes later."""

from __future__ import annotations

import os
from typing import Final

from blockfs.fuse.passthrough_helper import SOCKET
from blockfs.mount.choice import Choice
from blockfs.runtime.space import charges_mapped_pages

_STATUS: Final = "/proc/self/status"
_FIRST_NAMESPACE: Final = 0xEFFF_FFFD  # PROC_USER_INIT_INO, linux/proc_ns.h
_SYS_ADMIN: Final = 21  # CAP_SYS_ADMIN, linux/capability.h


def why_not(
    frontend: Choice, *, wanted: bool | None, volume: bytes, status: str = _STATUS, helper: str = SOCKET
) -> str | None:
    """Why it can't be, or shall not; None: nothing of this speaks against it.

    Args:
        frontend: What was chosen.
        wanted: Whether it was asked for, or forbidden; None: neither.
        volume: Where the volume is.
        status: Where the kernel tells the capabilities of this process.
        helper: The socket of the root helper.
    """
    if wanted is False:
        return "--no-native was asked for"
    if frontend is Choice.PYFUSE3:
        return "the front-end pyfuse3 can't have the kernel read and write files itself"
    if not _may(status) and not os.access(helper, os.W_OK):
        return (
            "only root may have the kernel read and write files itself (CAP_SYS_ADMIN, outside of containers), and who "
            f"finds the helper at {helper}"
        )
    if wanted is None and charges_mapped_pages(volume):
        # What the kernel writes past us leaves no reserve, and then LMDB's lock file is deadly: see `runtime.space`.
        return "on btrfs a full disk would end a native mount: --native asks for one all the same"
    return None


def _may(status: str) -> bool:
    """Whether this process has CAP_SYS_ADMIN outside of containers: registering files asks for that one."""
    with open(status, encoding="ascii", errors="replace") as lines:
        effective = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return bool(effective >> _SYS_ADMIN & 1) and os.stat("/proc/self/ns/user").st_ino == _FIRST_NAMESPACE
