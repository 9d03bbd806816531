"""The command: verbs, messages, exit codes."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from blockfs.errors import CorruptionError, LockedError, NoSpaceError, NotFoundError, UsageError
from syncer.cli import commands as verbs
from syncer.cli import main as entry
from syncer.errors import SyncerError

VOLUME_VERBS = ["init", "mount", "umount", "clone", "flush", "stats", "gc", "fsck", "scrub"]


class Failing:
    """A module with a verb that fails."""

    def __init__(self, error: BaseException) -> None:
        @click.command("stats")
        def command() -> None:
            raise error

        self.command = command


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("bad value"), 2, "bad value"),
        (NotFoundError("no volume"), 10, "no volume"),
        (LockedError("volume", 77), 11, "process 77"),
        (CorruptionError("damaged"), 15, "damaged"),
        (NoSpaceError("full"), 17, "full"),
        (SyncerError("some trouble"), 1, "some trouble"),
        (OSError(errno.ENOSPC, "No space left on device"), 17, "No space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 17, "quota"),
        (PermissionError(errno.EACCES, "Permission denied", b"/x\xff"), 12, r"blocksync: /x\xff: Permission denied"),
        (OSError(errno.EROFS, "Read-only file system", b"/x"), 2, "blocksync: /x: Read-only file system"),
        (OSError(errno.EIO, "Input/output error", b"/a", None, b"/b"), 1, "blocksync: /a -> /b: Input/output error"),
        (OSError("no number, no name"), 1, "blocksync: no number, no name"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (ZeroDivisionError("oops"), 1, "internal error: ZeroDivisionError"),
    ],
)
def test_every_failure_is_one_line_and_its_exit_code(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verbs.importlib, "import_module", lambda _name: Failing(error))
    assert entry.run(["stats"]) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.strip().count("\n") == 0
    assert captured.out == ""


def test_with_json_a_failure_is_a_line_of_json_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verbs.importlib, "import_module", lambda _name: Failing(NotFoundError("unused")))
    for arguments, code, message in (
        (["stats", "--json"], 2, "No such option"),  # the verb of this test has none
        (["nonsense", "--json"], 2, "there is no verb 'nonsense'"),
    ):
        assert entry.run(arguments) == code
        (line,) = capsys.readouterr().out.splitlines()
        told = json.loads(line)
        assert (told["type"], told["version"], told["root"], told["exit_code"]) == ("error", 1, None, code)
        assert message in told["message"]


def test_debug_shows_where_it_happened(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(verbs.importlib, "import_module", lambda _name: Failing(ZeroDivisionError("oops")))
    assert entry.run(["--debug", "stats"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_wrong_command_lines_end_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["nonsense"], ["stats"], ["stats", "--wrong", "x"], ["init", "a", "b"]):
        assert entry.run(arguments) == 2
    assert "there is no verb 'nonsense'" in capsys.readouterr().err


def test_help_and_version_are_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("blocksync ")
    for verb in VOLUME_VERBS:
        assert entry.run([verb, "--help"]) == 0
        assert verb in capsys.readouterr().out


def test_stats_needs_no_fuse_library_and_no_event_loop() -> None:
    """`import` of a verb is part of its running time, and a host without FUSE can use the others."""
    code = "import sys, blockfs.cli.stats; print(sorted({'pyfuse3', 'trio', 'uvicorn', 'lmdb'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_volume_verb_is_documented() -> None:
    text = (Path(__file__).parents[4] / "docs" / "reference" / "cli.md").read_text()
    for verb in VOLUME_VERBS:
        assert f"### `blocksync {verb} " in text
