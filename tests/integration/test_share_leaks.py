"""What a root of either kind has on its disk and does not tell other devices of; each after commands as users give.

Who asks has proved the key of the root's share: the last line of defence is what `SharedRoot` answers.
"""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blockfs.blocks.hashing import block_id
from syncer.cli.registry.roots import Registry
from syncer.cli.session.opening import shared_root
from tests import effort
from tests.integration.syncing import BLOCK, Sync, clear, command


def noise(number: int) -> bytes:
    """Two blocks that nothing else has."""
    return random.Random(number).randbytes(2 * BLOCK)


class Roots:
    """Roots of one kind on one machine, and what they tell.

    Attributes:
        sync: The command line.
        make: Makes a further root, linked to the container or, with a text, to this folder of it.
        is_volume: Of which kind they are.
    """

    def __init__(self, sync: Sync, make: Callable[[str], Path], *, is_volume: bool) -> None:
        self.sync, self.make, self.is_volume = sync, make, is_volume

    def tells(self, root: Path, data: bytes) -> bool:
        """Whether any of these bytes are told of or given; all of them or none."""
        share = shared_root(Registry(os.environ).get(os.fsencode(root)))
        try:
            names = [block_id(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
            told = share.match([name[:8] for name in names])
            given = [share.read(name) for name in names]
        finally:
            share.close()
        assert [each is not None for each in given] == told
        assert len(set(told)) == 1
        return told[0]


@pytest.fixture(params=["folder", "volume"])
def roots(request: pytest.FixtureRequest, sync: Sync) -> Iterator[Roots]:
    is_volume = request.param == "volume"
    points = list(request.getfixturevalue("mounts")) if is_volume else []
    made: list[Path] = []

    def make(prefix: str = "") -> Path:
        root = points.pop() if is_volume else sync.home / uuid.uuid4().hex
        root.mkdir(exist_ok=True)
        url = sync.url + (f"?prefix={prefix}" if prefix else "")
        sync("link", root, url, "--token-file", sync.token_file)
        made.append(root)
        return root

    yield Roots(sync, make, is_volume=is_volume)
    for root in made:
        sync("unlink", root)
        clear(root)


def with_file(roots: Roots) -> Path:
    """A root that has told of one file."""
    root = roots.make("")
    (root / "kept").write_bytes(noise(0))
    roots.sync.reconcile(root)
    assert roots.tells(root, noise(0))
    return root


def paused(roots: Roots) -> None:
    root = with_file(roots)
    roots.sync("pause", root)
    assert not roots.tells(root, noise(0))
    roots.sync("resume", root)
    assert roots.tells(root, noise(0))


def other_folders(roots: Roots) -> None:
    one, other = roots.make("one"), roots.make("other")
    (one / "file").write_bytes(noise(1))
    (other / "file").write_bytes(noise(2))
    for root in (one, other):
        roots.sync.reconcile(root)
    assert [roots.tells(one, noise(number)) for number in (1, 2)] == [True, False]
    assert [roots.tells(other, noise(number)) for number in (1, 2)] == [False, True]


def ignored(roots: Roots) -> None:
    root = with_file(roots)
    roots.sync("ignore", root, "add", "*.tmp")
    (root / "new.tmp").write_bytes(noise(1))
    roots.sync.reconcile(root)
    assert not roots.tells(root, noise(1))


def ignored_from_now_on(roots: Roots) -> None:
    root = with_file(roots)
    (root / "old.tmp").write_bytes(noise(1))
    roots.sync.reconcile(root)
    assert roots.tells(root, noise(1))
    roots.sync("ignore", root, "add", "*.tmp")
    roots.sync.reconcile(root)
    assert not roots.tells(root, noise(1))


def not_pushed_yet(roots: Roots) -> None:
    root = with_file(roots)
    (root / "new").write_bytes(noise(1))
    (root / "kept").write_bytes(noise(2))
    if roots.is_volume:
        command("flush", root)  # they are in its block directory
    assert not roots.tells(root, noise(1))
    assert not roots.tells(root, noise(2))


def a_failed_push(roots: Roots) -> None:
    root = with_file(roots)
    (root / "new").write_bytes(noise(1))
    before, roots.sync.address = roots.sync.address, "http://127.0.0.1:1"
    state = Path(Registry(os.environ).get(os.fsencode(root)).state) / "root.json"
    kept = state.read_bytes()
    state.write_bytes(kept.replace(before.encode(), b"http://127.0.0.1:1"))
    roots.sync("reconcile", root, expect=13)
    assert not roots.tells(root, noise(1))
    state.write_bytes(kept)
    roots.sync.reconcile(root)
    assert roots.tells(root, noise(1))


def trash(roots: Roots) -> None:
    one, other = roots.make(""), roots.make("")
    (one / "gone").write_bytes(noise(1))
    (one / "replaced").write_bytes(noise(2))
    for root in (one, other):
        roots.sync.reconcile(root)
    assert roots.tells(other, noise(1))
    (one / "gone").unlink()
    (one / "replaced").write_bytes(noise(3))
    for root in (one, other):
        roots.sync.reconcile(root)
    roots.sync("trash", "ls", other)
    assert "gone" in roots.sync.out
    assert [roots.tells(other, noise(number)) for number in (1, 2, 3)] == [False, False, True]


def snapshots(roots: Roots) -> None:
    if not roots.is_volume:
        return  # a folder has none
    root = with_file(roots)
    command("snapshot", "create", root, "before")
    (root / "kept").write_bytes(noise(1))
    roots.sync.reconcile(root)
    try:
        assert not roots.tells(root, noise(0))
    finally:
        command("snapshot", "delete", root, "before")


def a_lost_index(roots: Roots) -> None:
    root = with_file(roots)
    (root / "hidden.tmp").write_bytes(noise(1))
    roots.sync("ignore", root, "add", "*.tmp")
    shutil.rmtree(Registry(os.environ).get(os.fsencode(root)).share_index)
    assert not roots.tells(root, noise(0))
    roots.sync.reconcile(root)  # nothing changed but that
    assert [roots.tells(root, noise(number)) for number in (0, 1)] == [True, False]


def relinked(roots: Roots) -> None:
    root = with_file(roots)
    (root / "kept").unlink()
    roots.sync.container = uuid.uuid4().hex
    roots.sync("link", root, roots.sync.url, "--token-file", roots.sync.token_file, "--relink")
    assert not roots.tells(root, noise(0))


CASES = (
    paused, other_folders, snapshots, a_lost_index, relinked, ignored, ignored_from_now_on, not_pushed_yet, trash,
    a_failed_push,
)  # fmt: skip


@pytest.mark.parametrize("case", effort.first("share leaks", CASES), ids=lambda case: case.__name__)
def test_what_is_not_in_the_share_is_neither_told_of_nor_given(roots: Roots, case: Callable[[Roots], None]) -> None:
    case(roots)
