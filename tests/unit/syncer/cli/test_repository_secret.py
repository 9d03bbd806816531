"""Where a repository's passphrase is taken from: all commands agree, and a script is never left waiting."""

from __future__ import annotations

import io
import os
import pty
import sys
from pathlib import Path

import pytest

from syncer.cli.passphrase import repository_secret
from syncer.errors import NotFoundError, UsageError


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "option"
    path.write_text("by the option\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "variable"
    path.write_text("by the file of the variable\n")
    path.chmod(0o600)
    return {"BLOCKSYNC_PASSWORD_FILE": str(path), "BLOCKSYNC_PASSWORD": "by the variable"}


def test_the_option_comes_before_the_file_of_the_variable_before_the_variable(
    file: str, environment: dict[str, str]
) -> None:
    assert repository_secret(file, environment) == "by the option"
    assert repository_secret(None, environment) == "by the file of the variable"
    del environment["BLOCKSYNC_PASSWORD_FILE"]
    assert repository_secret(None, environment) == "by the variable"


def test_variables_that_are_empty_are_not_set(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"not asked for\n")))
    environment["BLOCKSYNC_PASSWORD_FILE"] = ""
    assert repository_secret(None, environment) == "by the variable"
    environment["BLOCKSYNC_PASSWORD"] = ""
    with pytest.raises(UsageError):
        repository_secret(None, environment)


def test_a_variable_that_holds_no_text_is_refused(environment: dict[str, str]) -> None:
    del environment["BLOCKSYNC_PASSWORD_FILE"]
    environment["BLOCKSYNC_PASSWORD"] = os.fsdecode(b"no text: \xff\xfe")
    with pytest.raises(UsageError, match="BLOCKSYNC_PASSWORD: the passphrase is no UTF-8 text"):
        repository_secret(None, environment)


def test_without_a_terminal_nobody_is_asked_and_standard_input_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    source = io.BytesIO(b"somebody else's\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(source))
    with pytest.raises(UsageError, match="--password-file FILE, or set BLOCKSYNC_PASSWORD_FILE or BLOCKSYNC_PASSWORD"):
        repository_secret(None, {})
    assert source.tell() == 0
    assert repository_secret("-", {}) == "somebody else's"


def test_a_file_that_is_not_there_or_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="none does not exist"):
        repository_secret(str(tmp_path / "none"), {})
    with pytest.raises(UsageError, match="can't be read"):
        repository_secret(str(tmp_path), {})
    (tmp_path / "two").write_text("one\ntwo\n")
    with pytest.raises(UsageError, match="two: expected a passphrase of one line"):
        repository_secret(str(tmp_path / "two"), {})


_TYPES = f"""
import sys
sys.path[:0] = {sys.path!r}
from syncer.cli.passphrase import repository_secret
print("got", len(repository_secret(None, {{}}, new=sys.argv[1] == "new")))
"""


@pytest.mark.parametrize("asks", [["old", b"Passphrase of the repository: "], ["new", b"New passphrase", b"again: "]])
def test_a_terminal_is_asked_once_for_one_that_opens_and_twice_for_a_new_one(asks: list[bytes | str]) -> None:
    what, *prompts = asks
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", _TYPES, str(what)])
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(terminal, 1000)

    try:
        for prompt in prompts:
            until(prompt)
            os.write(terminal, b"correct horse battery\n")
        until(b"got 21")
        assert b"horse" not in shown
        assert os.waitpid(child, 0)[1] == 0
    finally:
        os.close(terminal)  # ends a child that still waits
