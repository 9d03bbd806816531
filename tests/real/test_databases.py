"""SQLite and git on a mount that is killed under them. Full counts: tests/soak/databases.py."""

from __future__ import annotations

from tests import effort
from tests.conftest import Mounted
from tests.real.databases import all_workloads, kill_under


def test_acknowledged_transactions_and_commits_survive_kill_nine_of_the_mount(mounted: Mounted) -> None:
    workloads = all_workloads(mounted.path)
    for transactions, commits in ((70, 10), (30, 5))[: effort.count("databases")]:
        kill_under(mounted, workloads, {name: commits if name == "git" else transactions for name in workloads})
    mounted.umount("--seal")
    for verb in ("fsck", "scrub"):
        mounted.run(verb, mounted.volume)
