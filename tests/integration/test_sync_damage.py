"""Damage on the server: of a stored block, which stops one file and no more; of the block index, which is made anew."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.errors import CorruptBlockError
from syncer.server.folder import ServerFolder
from syncer.server.store.store import Store
from tests.integration.live_server import serving
from tests.integration.syncing import BLOCK, Sync, content, server, set_home

NOISE = Random(8).randbytes(30 * BLOCK)


def test_a_damaged_block_stops_one_file_and_not_the_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_home(tmp_path, monkeypatch)
    tokens = tmp_path / "tokens"
    tokens.write_text("key default\n")
    small = b"a file of one block"
    damaged = {block_id(small), block_id(NOISE[20 * BLOCK : 21 * BLOCK])}
    with (
        Store(ServerFolder.open(str(tmp_path / "served"), block_size=BLOCK)) as store,
        serving(store, tokens.read_text()) as address,
    ):
        sync = Sync(tmp_path, f"http://{address}", tokens, capsys)
        first, second = sync.folder("a"), sync.folder("b")
        files = {"good": NOISE[:BLOCK] + b"good", "large": NOISE, "other": b"other", "small": small}
        for name, data in files.items():
            (first / name).write_bytes(data)
        sync.reconcile(first)
        read = store._blocks.read

        def read_damaged(wanted: BlockId, start: int, length: int) -> bytes:
            if wanted in damaged:
                raise CorruptBlockError(wanted, "flipped")
            return read(wanted, start, length)

        with monkeypatch.context() as patch:
            patch.setattr(store._blocks, "read", read_damaged)
            summary = sync.reconcile(second, expect=15)
            assert content(second) == {name: files[name] for name in ("good", "other")}
            assert summary["requests"] < 40  # it is not asked for again and again
            assert "large" in sync.out
            assert "small" in sync.out
        sync.reconcile(second)
        assert content(second) == files


@pytest.mark.parametrize("damage", ["cut off", "gone"])
def test_a_server_without_its_block_index_gets_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """What it says when it refuses to begin must work; everything is still in the segments."""
    set_home(tmp_path, monkeypatch)
    served = tmp_path / "served"
    with server(served) as address:
        sync = Sync(tmp_path, address, served / "token", capsys)
        first = sync.folder("a")
        (first / "large").write_bytes(NOISE)
        sync.reconcile(first)
        sync("fsck", "--repair", served, expect=11)
    index = served / "blocks/index/data.mdb"
    if damage == "gone":
        index.unlink()
    else:
        os.truncate(index, 9000)
    sync("serve", served, "--listen", "127.0.0.1:0", expect=15)
    assert "blocksync fsck --repair" in sync.err
    (found,) = sync("fsck", served, "--json", expect=15)
    assert [finding["kind"] for finding in found["findings"]] == ["block-index"]
    sync("fsck", "--repair", served)
    assert "made anew with 31 blocks" in sync.out
    (found,) = sync("fsck", served, "--json")
    assert found["clean"]
    with server(served) as address:
        sync = Sync(tmp_path, address, served / "token", capsys, container=sync.container)
        second = sync.home / "b"
        second.mkdir()
        sync("link", second, sync.url, "--token-file", sync.token_file)
        sync.reconcile(second)
        assert content(second) == {"large": NOISE}


def test_a_repair_tells_which_blocks_of_a_server_are_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served = tmp_path / "served"
    with Store(ServerFolder.open(str(served), block_size=BLOCK)) as store, store._blocks.hold() as hold:
        store._blocks.put(b"sound", hold)
        store._blocks.put(NOISE[:BLOCK], hold)
        store._blocks.sync()
    (segment,) = (served / "blocks/segments").glob("*.seg")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(NOISE[100:200], bytes(100)))
    (served / "blocks/index/data.mdb").unlink()
    sync = Sync(tmp_path, "", tmp_path, capsys)
    sync("fsck", "--repair", served, expect=15)
    assert f"block: {block_id(NOISE[:BLOCK]).hex()} is lost" in sync.out
    assert "made anew with 1 block" in sync.out
