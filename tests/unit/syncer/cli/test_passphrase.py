"""A share's key from a passphrase: how it is given, what is refused, and what users see of it."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
from pathlib import Path

import pytest

from syncer.cli.doctor.lancheck import of_key
from syncer.cli.main import run
from syncer.cli.passphrase import read_passphrase
from syncer.cli.registry.roots import FORMAT, LinkedRoot, Registry, RootRecord, encoded_path
from syncer.cli.session.opening import key_keeper
from syncer.errors import NotFoundError, UsageError
from syncer.local.folder.identity import Folder
from syncer.peer import sharekey

PHRASE = "correct horse battery"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LinkedRoot:
    """A linked root in a home of its own, where a passphrase costs no half second."""
    monkeypatch.setattr(sharekey, "_SCRYPT_N", 4)
    for name in ("state", "data", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    path = tmp_path / "root"
    path.mkdir()
    record = RootRecord(
        format=FORMAT, uuid="u1", path=encoded_path(os.fsencode(path)), url="pithos+http://h/anna/docs",
        block_size=65536, folder=Folder(uuid="u1", ino=3, device=4, filesystem=5), volume_uuid=None,
    )  # fmt: skip
    return Registry(os.environ).write(record, "secret")


def typed(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    """What a script sends to standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def keys(root: LinkedRoot) -> list[bytes]:
    return [key.raw for key in key_keeper(root).keys_now()]


def test_a_passphrase_makes_the_key_and_is_not_kept(
    root: LinkedRoot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    typed(monkeypatch, f"{PHRASE}\n".encode())
    assert run(["peers", "passphrase", os.fsdecode(root.path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "type": "passphrase", "version": 1, "root": os.fsdecode(root.path), "set": True, "mark": told["mark"],
        "daemon": False,
    }  # fmt: skip
    assert len(keys(root)) == 1
    kept = Path(root.lan_key)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert b"horse" not in kept.read_bytes()
    # The same one from a file, on another device, makes the same key.
    first = keys(root)
    kept.unlink()
    (tmp_path / "phrase").write_text(f"  {PHRASE} \n")
    (tmp_path / "phrase").chmod(0o600)
    assert run(["peers", "passphrase", os.fsdecode(root.path), "--file", str(tmp_path / "phrase")]) == 0
    assert keys(root) == first
    assert told["mark"] in capsys.readouterr().err
    assert told["mark"] in of_key(root)[1]


def test_status_and_doctor_say_that_there_is_one(
    root: LinkedRoot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who wonders why nobody is found reads there that others must have it, too."""
    key_keeper(root).use_passphrase(PHRASE, "anna", "docs", "")
    _, text, remedy = of_key(root)
    assert "made from a passphrase" in text
    assert "another passphrase, or without it, are no peers" in remedy
    path = os.fsdecode(root.path)
    assert run(["peers", "passphrase", path, "--clear"]) == 0
    assert "takes the share's key on the server again" in capsys.readouterr().err
    assert keys(root) == []
    assert "no key is known yet" in of_key(root)[1]
    assert run(["peers", "passphrase", path, "--clear"]) == 2
    assert f"{path} has no passphrase" in capsys.readouterr().err


def test_a_key_of_a_passphrase_is_not_rotated(root: LinkedRoot, capsys: pytest.CaptureFixture[str]) -> None:
    """The server would get a key that nobody here uses."""
    key_keeper(root).use_passphrase(PHRASE, "anna", "docs", "")
    before = keys(root)
    assert run(["peers", "rotate", os.fsdecode(root.path)]) == 2
    assert "made from a passphrase" in capsys.readouterr().err
    assert keys(root) == before


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"short\n", "needs at least 12 characters, this one has 5"),
        (b"one long enough\nand another\n", "one line"),
        (b"x" * 5000, "one line"),
        (b"\xff" * 20, "UTF-8"),
    ],
)
def test_what_is_no_passphrase_is_refused_and_changes_nothing(
    root: LinkedRoot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raw: bytes, said: str
) -> None:
    typed(monkeypatch, raw)
    assert run(["peers", "passphrase", os.fsdecode(root.path)]) == 2
    assert said in capsys.readouterr().err
    assert not Path(root.lan_key).exists()


def test_a_root_that_is_not_linked_and_a_file_that_is_not_there_are_named(
    root: LinkedRoot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["peers", "passphrase", str(tmp_path)]) == 10
    assert f"{tmp_path} is not linked; `blocksync link" in capsys.readouterr().err
    assert run(["peers", "passphrase", os.fsdecode(root.path), "--file", str(tmp_path / "none")]) == 10
    assert "none does not exist" in capsys.readouterr().err


def test_a_file_that_others_can_read_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phrase"
    path.write_text(PHRASE)
    path.chmod(0o644)
    assert read_passphrase(str(path)) == PHRASE
    assert "others can read it" in capsys.readouterr().err


def test_standard_input_by_its_name_and_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (None, "-"):
        typed(monkeypatch, PHRASE.encode())
        assert read_passphrase(file) == PHRASE


def test_errors_are_of_the_kinds_that_are_promised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    typed(monkeypatch, b"")
    with pytest.raises(UsageError):
        read_passphrase("-")
    with pytest.raises(NotFoundError):
        read_passphrase(str(tmp_path / "none"))


_TYPES = f"""
import sys
sys.path[:0] = {sys.path!r}
from syncer.cli.passphrase import read_passphrase
print("got", len(read_passphrase(None)))
"""


def test_on_a_terminal_it_is_asked_for_twice_and_not_shown() -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", _TYPES])
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(terminal, 1000)

    try:
        until(b"Passphrase: ")
        os.write(terminal, f"{PHRASE}\n".encode())
        until(b"The same again: ")
        os.write(terminal, f"{PHRASE}\n".encode())
        until(b"got 21")
        assert b"horse" not in shown
        assert os.waitpid(child, 0)[1] == 0
    finally:
        os.close(terminal)  # ends a child that still waits
