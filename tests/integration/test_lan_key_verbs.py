"""The share's key as commands make it: by the first cycle that may write, and by nothing that only looks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from syncer.cli.opening import key_keeper
from syncer.cli.roots import Registry
from syncer.core.model import Kind, RelPath, RemoteStat
from syncer.core.paths import LAN_KEY
from syncer.remote.client import CloudClient
from syncer.remote.prefix import open_remote
from tests.contract.remotes import META
from tests.integration.syncing import Sync, content

NAME = RelPath(LAN_KEY)


def keys(root: Path) -> list[bytes]:
    linked = Registry(os.environ).get(os.fsencode(root))
    return [key.raw for key in key_keeper(linked).keys_now()]


def on_server(sync: Sync, prefix: str = "", data: bytes | None = None) -> RemoteStat | None:
    """The object; with `data` it is replaced by them first."""
    token = sync.token_file.read_text().split()[0]

    async def look() -> RemoteStat | None:
        client: CloudClient = open_remote(sync.url + prefix, token)
        try:
            found = await client.head(NAME)
            if data is not None:
                await client.put_small(NAME, Kind.FILE, data, META, found.tag if found else None)
            return await client.head(NAME)
        finally:
            await client.close()

    return trio.run(look)


def test_the_first_cycle_makes_it_and_what_only_looks_does_not(sync: Sync) -> None:
    root = sync.folder("one")
    (root / "file").write_text("text")
    sync("plan", root)
    sync("doctor", root)
    sync("reconcile", root, "--dry-run")
    assert on_server(sync) is None
    assert keys(root) == []
    sync.reconcile(root)
    assert on_server(sync) is not None
    assert len(keys(root)) == 1
    again = sync.folder("two")
    sync.reconcile(again)
    assert keys(again) == keys(root)
    assert content(again) == {"file": b"text"}
    sync.at_rest(root, again)


def test_a_cycle_that_changes_nothing_is_still_one_request(sync: Sync) -> None:
    root = sync.folder("one")
    (root / "file").write_text("text")
    sync.reconcile(root)
    sync.reconcile(root)
    assert sync.reconcile(root)["requests"] == 1


def test_a_folder_of_the_container_has_a_key_of_its_own(sync: Sync, monkeypatch: pytest.MonkeyPatch) -> None:
    part = sync.home / "part"
    part.mkdir()
    sync("link", part, f"{sync.url}?prefix=inside", "--token-file", sync.token_file)
    sync.reconcile(part)
    of_part = keys(part)
    assert on_server(sync) is None
    assert on_server(sync, "?prefix=inside") is not None
    monkeypatch.setenv("XDG_STATE_HOME", str(sync.home / "another machine"))
    whole = sync.folder("whole")
    sync.reconcile(whole)
    assert len(of_part) == len(keys(whole)) == 1
    assert keys(whole) != of_part
    found = whole / "inside" / ".blocksync" / "lan-key"  # a file as others to who has all of the container
    assert found.stat().st_mode & 0o777 == 0o600
    sync.at_rest(whole)


def test_status_says_in_one_line_why_the_lan_is_off(sync: Sync) -> None:
    root = sync.folder("one")
    sync.reconcile(root)
    sync("status", root)
    assert "LAN" not in sync.out
    on_server(sync, data=b"rubbish")
    sync.reconcile(root)
    assert keys(root) == []
    sync("status", root)
    assert [line for line in sync.out.splitlines() if "LAN" in line and "malformed" in line]
    (status,) = sync("status", root, "--json")
    assert "malformed" in status["lan_off"]
    checks = [each["text"] for each in sync("doctor", root, "--json") if each["root"] and each["subject"] == "LAN"]
    assert len(checks) == 1
    assert "its share is all of the container; roots of a folder of it are of another; LAN off: " in checks[0]


def test_blocks_may_come_from_peers_while_the_server_is_away(sync: Sync) -> None:
    root = sync.folder("one")
    sync.reconcile(root)
    found = keys(root)
    sync.address = "http://127.0.0.1:1"
    assert keys(root) == found
