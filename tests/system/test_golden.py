"""Volumes that earlier versions wrote stay readable and writable, down to the last byte and attribute."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.golden import make_hot
from tests.golden.contents import describe
from tests.golden.make_failed import CONTENTS, PAGE
from tests.system.machines import Machines

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("ending", ["clean", "killed"])
@pytest.mark.parametrize("archive", sorted(path.name for path in GOLDEN.glob("format-*.tar.xz")))
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


def test_a_golden_volume_of_which_something_was_lost_says_so_until_it_is_written_again(machines: Machines) -> None:
    """Format 3: what a failed flush lost is remembered over releases, and gone with the format once it is mended."""
    with tarfile.open(GOLDEN / "failed/format-3.tar.xz") as packed:
        packed.extractall(machines.home, filter="data")
    volume = machines.home / "volume-golden"
    (machines.home / "failed").rename(volume)
    (machines.home / "golden").mkdir()
    assert "f: bytes 4096 to 8191" in machines.run("fsck", volume, expect=15).stdout
    root = machines.remount("golden")
    assert (root / "sound").read_bytes() == CONTENTS[b"sound"]
    with (root / "f").open("r+b", buffering=0) as file:
        assert file.read(PAGE) == CONTENTS[b"f"][:PAGE]
        with pytest.raises(OSError, match="Input/output error"):
            os.pread(file.fileno(), PAGE, PAGE)
        os.pwrite(file.fileno(), b"m" * PAGE, PAGE)
        os.fsync(file.fileno())
    assert (root / "f").read_bytes() == b"o" * PAGE + b"m" * PAGE + b"o" * 2 * PAGE
    machines.run("umount", root)
    machines.run("fsck", volume)


def test_a_golden_volume_with_hot_files_has_their_content_and_is_sealed_on_any_host(machines: Machines) -> None:
    """Format 4: what a native mount had not sealed is there, also without sharing; then the number goes back."""
    with tarfile.open(GOLDEN / "hot/format-4.tar.xz") as packed:
        packed.extractall(machines.home, filter="data")
    volume = machines.home / "volume-golden"
    (machines.home / "hot").rename(volume)
    (machines.home / "golden").mkdir()
    assert len(os.listdir(volume / "hot")) == len(make_hot.CONTENTS)
    machines.run("fsck", volume)
    root = machines.remount("golden")
    for name, data in make_hot.CONTENTS.items():
        assert (root / os.fsdecode(name)).read_bytes() == data
    machines.run("umount", root, "--seal")
    assert os.listdir(volume / "hot") == []
    machines.run("fsck", volume)
    root = machines.remount("golden")
    for name, data in make_hot.CONTENTS.items():
        assert (root / os.fsdecode(name)).read_bytes() == data
