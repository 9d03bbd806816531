"""The share's key as commands make it: by the first cycle that may write, and by nothing that only looks."""

from __future__ import annotations

import http.client
import os
import subprocess
from pathlib import Path

import pytest
import trio

from syncer.cli.registry.roots import Registry
from syncer.cli.session.opening import key_keeper
from syncer.core.model import Kind, RelPath
from syncer.core.paths import LAN_KEY
from syncer.peer.sharekey import MAX_OBJECT_BYTES
from syncer.ports.remote import Remote, Secret
from syncer.remote.prefix import open_container
from tests.contract.remotes import META
from tests.contract.writing import delete, put_small
from tests.integration.syncing import BLOCKSYNC, Sync, content

NAME = RelPath(LAN_KEY)


def keys(root: Path) -> list[bytes]:
    linked = Registry(os.environ).get(os.fsencode(root))
    return [key.raw for key in key_keeper(linked).keys_now()]


def found_on_server(sync: Sync) -> bytes:
    """What the object says."""
    stored = sync.address.removeprefix("http://")
    connection = http.client.HTTPConnection(stored)
    token = sync.token_file.read_text().split()[0]
    connection.request(
        "GET", f"/v1/{sync.account}/{sync.container}/{LAN_KEY.decode()}", headers={"X-Auth-Token": token}
    )
    reply = connection.getresponse()
    assert reply.status == 200
    data = reply.read()
    connection.close()
    return data


def on_server(sync: Sync, prefix: str = "", data: bytes | None = None, *, gone: bool = False) -> Secret | None:
    """The object; with `data` it is replaced by them first, with `gone` it is deleted."""
    token = sync.token_file.read_text().split()[0]

    async def look() -> Secret | None:
        client: Remote = open_container(sync.url + prefix, token)
        try:
            found = await client.secret(NAME, MAX_OBJECT_BYTES)
            if gone:
                assert found is not None
                await delete(client, NAME, found.tag)
            if data is not None:
                await put_small(client, NAME, Kind.FILE, data, META, found.tag if found else None)
            return await client.secret(NAME, MAX_OBJECT_BYTES)
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


def spoiled(sync: Sync, root: Path, how: str) -> None:
    """Something happens to the share's key, and a cycle notices."""
    first = found_on_server(sync)
    if how == "rolled back":
        sync("peers", "rotate", root)
        on_server(sync, data=first)
    elif how == "gone":
        on_server(sync, gone=True)
    else:
        on_server(
            sync, data={"malformed": first.replace(b"generation", b"degeneration"), "newer": b'{"format": 2}'}[how]
        )
    sync.reconcile(root)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("malformed", "the share's key on the server is malformed"),
        ("gone", "the share's key is gone from the server; `blocksync peers rotate` makes a new one"),
        (
            "rolled back",
            "the share's key on the server is an older one (generation 1, 2 was seen); `blocksync peers rotate`",
        ),
        ("newer", "the share's key on the server has format 2, this blocksync knows up to 1: use a newer blocksync"),
    ],
)
def test_a_key_that_can_not_be_used_turns_the_lan_off_in_words_until_somebody_rotates(
    sync: Sync, how: str, said: str
) -> None:
    root = sync.folder("one")
    (root / "file").write_text("text")
    sync.reconcile(root)
    spoiled(sync, root, how)
    assert keys(root) == []
    sync("status", root)
    (line,) = [line for line in sync.out.splitlines() if line.startswith("LAN")]
    assert f"off: {said}" in line
    (root / "file").write_text("another")  # a cycle goes its way
    assert sync.reconcile(root)["pushed"] == 1
    again = sync.folder("two")  # who never saw another takes what there is, if it is one
    sync.reconcile(again)
    assert bool(keys(again)) == (how in {"rolled back", "gone"})
    if how == "newer":
        sync("peers", "rotate", root, expect=14)
        return
    sync("peers", "rotate", root)
    sync.reconcile(again)
    assert keys(again)[0] == keys(root)[0]
    sync("status", root)
    assert "LAN" not in sync.out


@pytest.mark.parametrize(
    ("raw", "off"),
    [(b"rubbish", ""), (b"", ""), (b'{"format": 2}', "lan-key is of a newer blocksync"), (None, "can't be read")],
)
def test_a_damaged_memory_of_the_key_is_asked_for_anew_and_one_of_a_newer_release_left_alone(
    sync: Sync, raw: bytes | None, off: str
) -> None:
    root = sync.folder("one")
    sync.reconcile(root)
    before = keys(root)
    file = Path(Registry(os.environ).get(os.fsencode(root)).lan_key)
    file.unlink()
    if raw is None:
        file.mkdir()  # what root can't read either
    else:
        file.write_bytes(raw)
    sync.reconcile(root)
    sync("status", root)
    sync("doctor", root)
    if off:
        (line,) = sync("status", root, "--json")
        assert off in str(line["lan_off"])
        assert file.is_dir() or file.read_bytes() == raw
    else:
        assert keys(root) == before
        assert file.stat().st_mode & 0o777 == 0o600


def test_two_devices_that_come_first_at_once_make_one_key(sync: Sync, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = []
    for name in ("one", "two"):
        monkeypatch.setenv("XDG_STATE_HOME", str(sync.home / name / "state"))
        (sync.home / name).mkdir()
        roots.append((dict(os.environ), sync.folder(f"root-{name}")))
    running = [
        subprocess.Popen([BLOCKSYNC, "reconcile", root], env=environment, stdout=subprocess.DEVNULL)
        for environment, root in roots
    ]
    assert [process.wait() for process in running] == [0, 0]
    found = []
    for environment, root in roots:
        monkeypatch.setenv("XDG_STATE_HOME", environment["XDG_STATE_HOME"])
        sync.reconcile(root)  # the one that lost may have learnt of the other's only now
        found.append(keys(root))
    assert found[0] == found[1]
    assert len(found[0]) == 1


def test_blocks_may_come_from_peers_while_the_server_is_away(sync: Sync) -> None:
    root = sync.folder("one")
    sync.reconcile(root)
    found = keys(root)
    sync.address = "http://127.0.0.1:1"
    assert keys(root) == found
