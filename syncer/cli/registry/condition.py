"""How a linked root stands, told by its folder and its last cycle, without asking the server."""

from __future__ import annotations

import os

from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import said
from syncer.cli.registry.roots import LinkedRoot
from syncer.engine.root_state import LastCycle
from syncer.errors import EXPECTED, RootIdentityError
from syncer.local.folder.identity import open_folder


def condition_of(linked: LinkedRoot, last: LastCycle | None) -> tuple[str, str]:
    """How a root stands, in a word, and why: see `syncer.cli.output.standing.RootStatus`."""
    holder = holder_of(os.path.join(linked.state, "lock"))
    if holder is not None:
        return "running", f"process {holder}"
    try:
        look_for(linked)
    except RootIdentityError as error:
        return "away", str(error)
    except EXPECTED as error:
        return "degraded", said(error)
    if last is None:
        return "never", "it was never reconciled"
    if last.exit_code in {ExitCode.DONE, ExitCode.CONFLICT_COPY}:
        return "ok", ""
    return "degraded", last.error or "the last cycle left something undone"


def holder_of(path: str) -> int | None:
    """The process that holds a flock on a file, as the kernel lists it. Looking must not take the lock itself.

    Lines of /proc/locks: `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5308512 0 EOF`.
    """
    try:
        ino = os.stat(path).st_ino
        with open("/proc/locks", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return None
    for row in rows:
        if len(row) >= 6 and row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(ino):
            return int(row[4])
    return None


def look_for(linked: LinkedRoot) -> None:
    """Make sure that the root is there; nothing is made in it, and nothing waits.

    Raises:
        RootIdentityError: It is not, or it is another one.
    """
    record = linked.record
    if record.folder is not None:
        os.close(open_folder(linked.path, record.folder))
        return
    from syncer.local.volume.mount import check_mount  # noqa: PLC0415 - what talks to a mount, for who has one

    assert record.volume_uuid is not None
    check_mount(linked.path, record.volume_uuid)
