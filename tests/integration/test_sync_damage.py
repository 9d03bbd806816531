"""A stored block of the server is damaged: that file is named with 15, the others arrive."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.errors import CorruptBlockError
from syncer.server.folder import ServerFolder
from syncer.server.store import Store
from tests.integration.live_server import serving
from tests.integration.syncing import BLOCK, Sync, content

NOISE = Random(8).randbytes(30 * BLOCK)


def test_a_damaged_block_stops_one_file_and_not_the_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
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
