"""How a cycle of the daemon ended, as `status` says it: as `reconcile` would."""

from __future__ import annotations

import errno
import os

import pytest
import trio

from syncer.cli.registry.roots import Registry
from syncer.cli.session.watching import Ports
from syncer.engine.cycle import Cycle
from syncer.engine.report import Report
from syncer.errors import NoSpaceError, RemoteUnavailableError
from syncer.watch.work import ALL
from tests.integration.syncing import Sync


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 17),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 17),
        (NoSpaceError("full"), 17),
        (RemoteUnavailableError("gone"), 13),
        (OSError(errno.EIO, "Input/output error"), 1),
    ],
    ids=["disk", "quota", "blocks", "server", "other"],
)
@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a group"])
def test_a_cycle_of_the_daemon_ends_with_the_code_of_reconcile(
    sync: Sync, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, *, grouped: bool
) -> None:
    root = sync.folder("root")

    async def fail(self: Cycle) -> Report:
        raise ExceptionGroup("several", [error]) if grouped else error

    monkeypatch.setattr(Cycle, "run", fail)
    ports = Ports(Registry(os.environ).get(os.fsencode(root)), "inotify")

    async def cycle() -> None:
        remote = ports.connect()
        try:
            await ports.cycle(remote, ALL, lambda _: None)
        finally:
            await remote.close()

    with pytest.raises(type(error)):
        trio.run(cycle)
    assert sync("status", root, "--json")[0]["last_cycle"]["exit_code"] == code
    sync("reconcile", root, expect=code)
    assert sync("status", root, "--json")[0]["last_cycle"]["exit_code"] == code
