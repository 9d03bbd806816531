"""Volumes that earlier versions wrote stay readable and writable, down to the last byte and attribute."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.golden.contents import describe
from tests.system.machines import Machines

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize("archive", sorted(path.name for path in GOLDEN.glob("*.tar.xz")))
def test_a_golden_volume_is_what_it_was(machines: Machines, archive: str, ending: str) -> None:
    with tarfile.open(GOLDEN / archive) as packed:
        packed.extractall(machines.home, filter="data")
    expected = json.loads((machines.home / f"{ending}.json").read_text())
    (machines.home / ending).rename(machines.home / "volume-golden")
    (machines.home / "golden").mkdir()
    machines.run("fsck", machines.home / "volume-golden")
    root = machines.remount("golden")
    found = describe(root)
    assert found == expected

    with (root / "leaves").open("r+b") as file:
        file.seek(100)
        file.write(b"written by this version")
    (root / "new").write_bytes(b"new")
    machines.run("umount", root, "--seal")
    machines.run("fsck", machines.home / "volume-golden")
    machines.run("scrub", machines.home / "volume-golden")
    machines.remount("golden")
    found = describe(root)
    assert (root / "leaves").read_bytes()[100:123] == b"written by this version"
    assert (root / "new").read_bytes() == b"new"
    changed = {".", "leaves"}
    assert {name: entry for name, entry in found.items() if name not in changed | {"new"}} == {
        name: entry for name, entry in expected.items() if name not in changed
    }
