"""Work in a process of its own: results, errors, and deaths that damaged pages explain."""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path

import pytest

from blockfs.control.protocol import GcReply
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import BlockfsError, CorruptionError, NoSpaceError
from blockfs.service.child import in_child
from tests.unit.blockfs.engine.volumes import config, make

DONE = GcReply(blocks_removed=1, bytes_freed=2)


@pytest.fixture
def volume(tmp_path: Path) -> bytes:
    path = make(tmp_path / "volume")
    Filesystem.open(path, config()).close()
    return path


def die() -> GcReply:
    faulthandler.disable()  # this death is meant: no stack of the tests
    os.kill(os.getpid(), signal.SIGBUS)
    return DONE


def test_a_result_comes_back(volume: bytes) -> None:
    parent = os.getpid()

    def work() -> GcReply:
        assert os.getpid() != parent
        return DONE

    assert in_child(volume, work, GcReply) == DONE


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [(NoSpaceError("the host is full"), 17, "the host is full"), (ZeroDivisionError("oops"), 1, "internal error")],
)
def test_an_error_comes_back_with_its_code(volume: bytes, error: Exception, code: int, words: str) -> None:
    def work() -> GcReply:
        raise error

    with pytest.raises(BlockfsError, match=words) as raised:
        in_child(volume, work, GcReply)
    assert raised.value.exit_code == code


def test_a_death_is_told_by_its_signal(volume: bytes) -> None:
    with pytest.raises(BlockfsError, match="SIGBUS") as raised:
        in_child(volume, die, GcReply)
    assert raised.value.exit_code == 1


@pytest.mark.parametrize("store", ["tree", "blocks/index"])
def test_a_death_is_told_as_damage_if_pages_are_damaged(volume: bytes, store: str) -> None:
    data = Path(os.fsdecode(volume), store, "data.mdb")
    os.truncate(data, data.stat().st_size - 4096)
    with pytest.raises(CorruptionError, match=f"{store}/data.mdb is damaged"):
        in_child(volume, die, GcReply)
