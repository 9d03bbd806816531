"""`blocksync peers …` with roots that are not linked, and tokens that may only read: the words name the thing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.live_server import Client, server_in_thread
from tests.integration.syncing import Sync

TOKENS = "token-alice alice\ntoken-bob bob\n"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with server_in_thread(tmp_path / "server", TOKENS) as found:
        yield found


@pytest.fixture
def sync(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Sync]:
    """Bob's command line; a folder of Alice's container is shared with him for reading."""
    for name in ("state", "data", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    (tmp_path / "token").write_text("token-bob bob\n")
    (tmp_path / "token").chmod(0o600)
    alice = Client(address)
    alice("PUT", "/c")
    alice("PUT", "/c/photos", b"", Content_Type="application/directory")
    alice("PUT", "/c/photos/one", b"one")
    assert alice("POST", "/c/photos?update", X_Object_Sharing="read=bob").status == 202
    yield Sync(tmp_path, f"http://{address}", tmp_path / "token", capsys)
    alice.close()


@pytest.fixture
def reader(sync: Sync) -> Path:
    """A root that may only be read."""
    root = sync.home / "photos"
    root.mkdir()
    sync(
        "link", root, f"pithos+{sync.address}/v1/alice/c?prefix=photos", "--token-file", sync.token_file, "--no-create"
    )
    return root


@pytest.mark.parametrize("verb", ["off", "on", "rotate", "passphrase"])
@pytest.mark.parametrize("what", ["folder", "nothing"])
def test_a_root_that_is_not_linked_is_named_with_what_to_do(sync: Sync, verb: str, what: str) -> None:
    path = sync.home if what == "folder" else sync.home / "nothing"
    sync("peers", verb, path, expect=10)
    assert sync.err == f"blocksync: {path} is not linked; `blocksync link ROOT URL` links it\n"


def test_a_verb_that_does_not_exist_and_options_of_another_are_refused(sync: Sync) -> None:
    sync("peers", "unbann", expect=2)
    assert "Did you mean unban" in sync.err
    sync("peers", "--follow", "off", expect=2)
    assert "after off" in sync.err
    sync("peers", "rotate", expect=2)
    assert "ROOT" in sync.err


def test_without_a_daemon_nobody_can_be_unbanned(sync: Sync) -> None:
    sync("peers", "unban", "fe80::1", expect=10)
    assert sync.err == "blocksync: no `blocksync watch` is running\n"
    (told,) = sync("peers", "unban", "--json", expect=10)
    assert told["exit_code"] == 10


def test_who_may_only_read_makes_no_key_and_is_told_so_in_one_line(sync: Sync, reader: Path, address: str) -> None:
    sync("reconcile", reader)
    assert (reader / "one").read_bytes() == b"one"
    sync("status", reader)
    (line,) = [line for line in sync.out.splitlines() if line.startswith("LAN")]
    assert "off: the share's key can't be read or made:" in line
    assert line.endswith("; the first device that may write to the share makes it")
    sync("doctor", reader)
    assert "LAN off: the share's key can't be read or made" in sync.out
    assert "its share is the folder photos; roots of all of the container are of another" in sync.out
    (status,) = sync("status", reader, "--json")
    assert status["lan_off"].startswith("the share's key can't be read or made: ")
    alice = Client(address)
    assert alice("GET", "/c/photos/.blocksync/lan-key").status == 404
    alice.close()


def test_who_may_only_read_can_not_rotate_and_is_told_who_can(sync: Sync, reader: Path) -> None:
    sync("reconcile", reader)
    sync("peers", "rotate", reader, expect=12)
    assert f"{reader}" in sync.err
    assert "may not write" in sync.err
    (told,) = sync("peers", "rotate", reader, "--json", expect=12)
    assert (told["type"], told["exit_code"]) == ("error", 12)


def test_a_root_is_switched_off_and_on_whatever_its_key_is(sync: Sync, reader: Path) -> None:
    lines = sync("peers", "off", reader, "--json")
    assert lines[0]["lan_off"] == "by `blocksync peers off` for this root"
    sync("peers", "on")
    assert f"peers of {reader}: on" in sync.err
    assert json.dumps(sync("peers", "on", reader, "--json")[0]["lan_off"]) == "null"
