"""The file with a share's key: whole and private after a crash at any step; no writer undoes another's work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blockfs.runtime import atomic
from syncer.state.keyfile import KeyFile, Told

STEPS = ("open", "fchmod", "pwrite", "fsync", "close", "rename", "open", "fsync", "close")
"""Of one write: stage, make it durable, name it, make the name durable. The mode comes before the content."""


class Died(BaseException):
    """The process ends here."""


def each_step(monkeypatch: pytest.MonkeyPatch, visit: Callable[[str], None]) -> None:
    """Have `visit` called before each step of `write_atomically`."""

    class Calls:
        def __getattr__(self, name: str) -> Any:
            real = getattr(os, name)
            if name not in STEPS:
                return real

            def call(*arguments: Any, **options: Any) -> Any:
                visit(name)
                return real(*arguments, **options)

            return call

    monkeypatch.setattr(atomic, "os", Calls())


def test_it_is_staged_made_durable_named_and_the_name_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    each_step(monkeypatch, steps.append)
    KeyFile(str(tmp_path / "lan-key")).write(b"new")
    assert tuple(steps) == STEPS


@pytest.mark.parametrize("before", [None, b"old"])
@pytest.mark.parametrize("at", range(len(STEPS) + 1))
def test_a_crash_at_any_step_leaves_the_old_key_or_the_new_one_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, before: bytes | None
) -> None:
    file = KeyFile(str(tmp_path / "lan-key"))
    if before is not None:
        file.write(before)
    left = at

    def die(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died

    each_step(monkeypatch, die)
    if at < len(STEPS):
        with pytest.raises(Died):
            file.write(b"new")
    else:
        file.write(b"new")
    monkeypatch.undo()
    assert file.read() == (before if at <= STEPS.index("rename") else b"new")
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    # Who comes after goes on, whatever was left lying about: the lock died with its process.
    assert file.swap(file.read(), b"newer")
    assert file.read() == b"newer"
    assert os.listdir(tmp_path) == ["lan-key"]


def test_what_is_not_what_the_writer_goes_out_from_stays(tmp_path: Path) -> None:
    file = KeyFile(str(tmp_path / "lan-key"))
    assert not file.swap(b"some", b"mine")
    assert file.read() is None
    assert file.swap(None, b"mine")
    assert not file.swap(None, b"another")
    assert file.read() == b"mine"


def test_writers_at_once_leave_one_of_their_keys_whole(tmp_path: Path) -> None:
    file = KeyFile(str(tmp_path / "lan-key"))
    texts = [bytes([65 + number]) * 3000 for number in range(8)]
    writers = [threading.Thread(target=file.write, args=(text,)) for text in texts]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert file.read() in texts
    assert os.listdir(tmp_path) == ["lan-key"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (None, Told()),
        (b"rubbish", Told()),
        (b'{"format": 1, "off": "no", "passphrase": true}', Told(off="no", passphrase=True)),
    ],
)
def test_what_there_is_to_tell_of_it(tmp_path: Path, raw: bytes | None, told: Told) -> None:
    file = KeyFile(str(tmp_path / "lan-key"))
    if raw is not None:
        file.write(raw)
    assert file.told() == told


def test_one_of_a_newer_program_and_one_that_is_no_file_turn_the_lan_off(tmp_path: Path) -> None:
    file = KeyFile(str(tmp_path / "lan-key"))
    file.write(b'{"format": 2}')
    assert "newer blocksync" in file.told().off
    (tmp_path / "lan-key").unlink()
    (tmp_path / "lan-key").mkdir()
    assert "can't be read" in file.told().off
