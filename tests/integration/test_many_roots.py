"""Several roots in one command: a line for each on stdout, so that ten of them are a screen."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.syncing import Sync


def test_reconcile_tells_several_roots_in_a_line_each(sync: Sync) -> None:
    first, second = sync.folder("first"), sync.folder("second")
    (first / "file").write_bytes(b"x" * 1000)
    sync("reconcile")
    one, other = sync.out.splitlines()
    assert one.startswith(f"{first}: 1 pushed; sent ")
    assert other.startswith(f"{second}: 1 pulled; sent ")
    sync("reconcile")
    assert [line.partition("; ")[0] for line in sync.out.splitlines()] == [f"{first}: in step", f"{second}: in step"]
    Path(os.fsdecode(os.fsencode(first) + b"/caf\xe9")).touch()
    sync("reconcile", "--dry-run", expect=3)
    assert sync.out.startswith(f"{first} (dry run: nothing was changed): 1 not synced; ")
    sync("reconcile", first, expect=3)
    assert "\nnot synced" in sync.out  # one root is told in full


def test_status_tells_several_roots_in_a_line_each_and_what_is_the_matter(sync: Sync) -> None:
    first, second = sync.folder("first"), sync.folder("second")
    sync("reconcile")
    for number in range(12):
        (first / str(number)).touch()
    sync("reconcile", first)
    for number in range(12):
        (first / str(number)).unlink()
    sync("reconcile", first, expect=16)
    sync("status")
    lines = sync.out.splitlines()
    assert lines[0] == "2 roots: 1 safety stop, 1 ok; not watched: `blocksync watch` is not running"
    assert [(line.split()[0], line.split()[-1]) for line in lines[2:4]] == [("safety", str(first)), ("ok", str(second))]
    assert lines[4].startswith(f"{first}: safety stop: the plan would ")
    assert "--allow-deletes" in lines[4]
    assert len(lines) == 5
