"""`blocksync verify`: damage, differences and what could not be checked, by name; on folders and volumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from syncer.cli.main import run
from tests.integration.syncing import BLOCK, Sync, content


def verified(
    sync: Sync, root: Path, *options: str, expect: int = 0
) -> tuple[list[tuple[str, str, str]], dict[str, Any]]:
    lines = sync("verify", root, "--json", *options, expect=expect)
    found = [(line["verdict"], line["side"], line["path"]) for line in lines if line["type"] == "finding"]
    assert lines[-1]["type"] == "verify"
    return found, lines[-1]


def filled(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, _ = roots
    (first / "d").mkdir()
    (first / "d/image").write_bytes(os.urandom(5 * BLOCK + 17))
    (first / "other").write_bytes(b"other")
    (first / "empty").write_bytes(b"")
    (first / "link").symlink_to("other")
    for root in roots:
        sync.reconcile(root)


def test_what_is_in_order_is_said_to_be(sync: Sync, roots: tuple[Path, Path]) -> None:
    filled(sync, roots)
    before = content(roots[0])
    for root in roots:
        found, summary = verified(sync, root)
        assert (found, summary["files"], summary["bytes_read"]) == ([], 5, 0)
        found, summary = verified(sync, root, "--deep")
        assert found == []
        assert (summary["files"], summary["bytes_read"], summary["hashmaps"]) == (3, 5 * BLOCK + 17 + 5, 3)
    sync("verify", roots[0], "--deep")
    assert "3 files" in sync.out
    assert content(roots[0]) == before


def test_what_is_not_synced_yet_is_a_difference_and_no_damage(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    filled(sync, roots)
    (second / "other").write_bytes(b"changed there")
    sync.reconcile(second)
    (first / "new").write_bytes(b"new")
    (first / "empty").unlink()
    for options in ((), ("--deep",)):
        found, summary = verified(sync, first, *options, expect=3)
        assert found == [
            ("difference", "remote", "empty"),
            ("difference", "remote", "new"),
            ("difference", "local", "other"),
        ]
        assert (summary["difference"], summary["damage"]) == (3, 0)


def test_bytes_that_rotted_are_damage_with_their_range(sync: Sync, tmp_path: Path) -> None:
    """A write that puts the times back stands for a disk that forgets: no look at the evidence finds it."""
    roots = sync.folder("first"), sync.folder("second")
    filled(sync, roots)
    sync.reconcile(roots[0])
    image = roots[0] / "d/image"
    _rot(sync, image, 2 * BLOCK + 5)
    assert verified(sync, roots[0])[0] == []
    sync("verify", roots[0], "--deep", "--json", expect=15)
    lines = sync("verify", roots[0], "--deep", "--json", expect=15)
    (finding,) = [line for line in lines if line["type"] == "finding"]
    assert (finding["verdict"], finding["side"], finding["path"]) == ("damage", "local", "d/image")
    assert finding["ranges"] == [[2 * BLOCK, 3 * BLOCK]]
    sync("verify", roots[0], "--deep", expect=15)
    assert f"bytes {2 * BLOCK} to {3 * BLOCK - 1}" in sync.out


def _rot(sync: Sync, path: Path, at: int) -> None:
    """Change a byte under the filesystem's evidence: the StateDB learns the times that the change made."""
    from msgspec.structs import replace  # noqa: PLC0415

    from syncer.cli.registry.roots import Registry  # noqa: PLC0415
    from syncer.local.safe_open import tag_of  # noqa: PLC0415
    from syncer.local.syscalls import status  # noqa: PLC0415
    from syncer.state import statedb  # noqa: PLC0415

    before = path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before, before))
    linked, inside = Registry(os.environ).containing(os.fsencode(path))
    directory = os.open(path.parent, os.O_RDONLY)
    tag = tag_of(status(os.fsencode(path.name), directory))
    os.close(directory)
    with statedb.StateDB.open(linked.state) as database:
        base = database.load_base()
        (nid,) = base.by_path[inside]
        database.record([replace(base.rows[nid], local=tag)])


def test_a_rotten_file_is_healed_as_the_guide_to_recovery_says(sync: Sync) -> None:
    roots = sync.folder("first"), sync.folder("second")
    filled(sync, roots)
    good = (roots[1] / "d/image").read_bytes()
    image = roots[0] / "d/image"
    _rot(sync, image, 7)
    sync.reconcile(roots[0])
    sync.reconcile(roots[1])
    assert (roots[1] / "d/image").read_bytes() == good  # the rot is not pushed
    sync("link", roots[0], sync.url, "--relink", "--token-file", sync.token_file)
    sync.reconcile(roots[0], expect=4)
    assert image.read_bytes() == good
    sync("resolve", image, "--take", "remote")
    sync.reconcile(roots[0])
    sync.reconcile(roots[1])
    assert content(roots[0]) == content(roots[1])
    assert verified(sync, roots[0], "--deep")[0] == []


def test_several_roots_end_with_the_worst(sync: Sync) -> None:
    roots = sync.folder("first"), sync.folder("second")
    filled(sync, roots)
    (roots[1] / "new").write_bytes(b"")
    assert run(["verify"]) == 3
    _rot(sync, roots[0] / "d/image", 0)
    assert run(["verify", "--deep"]) == 15


def test_a_server_that_lies_is_named(sync: Sync, roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from syncer.errors import CorruptionError  # noqa: PLC0415
    from syncer.remote.pithos.read import VersionReader  # noqa: PLC0415

    filled(sync, roots)

    async def lie(self: VersionReader, asks: list[object]) -> list[CorruptionError]:
        return [CorruptionError("the hashmap does not have the object's hash") for _ in asks]

    monkeypatch.setattr(VersionReader, "block_lists", lie)
    found, _ = verified(sync, roots[0], "--deep", expect=15)
    assert ("damage", "remote", "d/image") in found
