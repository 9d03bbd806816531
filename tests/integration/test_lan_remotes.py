"""Blocks come from neighbours whatever the share's remote is: a plain Pithos, a repository on each kind of store."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import effort
from tests.fakes.pithos import BASE, FakePithos
from tests.integration.syncing import mounted
from tests.kit import sshd as ssh
from tests.kit import swift as swifts
from tests.kit.netns import Lan, Node
from tests.kit.program import BLOCKSYNC, SHARE_BLOCK, Machine, is_idle, is_there
from tests.kit.relay import relayed
from tests.kit.repositories import make_repository, password_file
from tests.kit.sshd import Sshd
from tests.kit.swift import Swift

DATA_BYTES = 16 << 20
SERVER_MBIT_S = 2.0  # of its cable


class LinkedMachine(Machine):
    """One node with a folder that is linked to any URL, with the options that this takes."""

    def __init__(self, node: Node, url: str, *options: str | Path, root: Path | None = None) -> None:
        self.url = url
        self.options = options
        super().__init__(node, None, root=root)  # type: ignore[arg-type]

    def link(self, root: Path, container: str, *options: str | Path) -> None:
        self("link", root, self.url, *self.options, *options)


def pulled(data: bytes, holder: LinkedMachine, puller: LinkedMachine, slow: Callable[[], None]) -> None:
    """What one device has pushed comes to the next from it, though the remote has it, too."""
    (holder.root / "image").write_bytes(data)
    holder("reconcile", holder.root)
    holder.watch()
    holder.until("peers", is_there)
    holder.until("status", is_idle)
    slow()
    told = puller.json("reconcile", puller.root)
    assert (puller.root / "image").read_bytes() == data
    assert told["bytes_from_peers"] >= len(data) // 2


@pytest.mark.parametrize("kind", ["folder", "volume"])
def test_devices_of_a_repository_are_neighbours_without_a_key_on_its_store(kind: str, tmp_path: Path) -> None:
    """The volume is on the holder's side, whose blocks are asked for; its machine has the other ones' repository."""
    data = os.urandom(DATA_BYTES)
    url = f"file://{tmp_path}/repository"
    make_repository(url)
    secret = password_file(tmp_path)
    names = ["mounted"] if kind == "volume" else []
    with mounted(tmp_path, *names) as points, Lan(3, home=tmp_path) as lan:
        holder = LinkedMachine(lan.nodes[1], url, "--password-file", secret, root=next(iter(points), None))
        puller = LinkedMachine(lan.nodes[2], url, "--password-file", secret, "--limit-down", "100KiB")
        pulled(data, holder, puller, slow=lambda: None)
        checks = [json.loads(line) for line in puller("doctor", puller.root, "--json").splitlines()]
        (of_root,) = [line for line in checks if line["root"] and line["subject"] == "LAN"]
        assert "its key is derived from the repository's" in of_root["text"]
        holder("reconcile", holder.root)
        assert not (holder.root / ".blocksync/lan-key").exists()


def test_devices_of_a_plain_pithos_are_neighbours(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with FakePithos(block_size=SHARE_BLOCK) as fake, Lan(3, home=tmp_path) as lan:
        token.write_text(fake.token)
        token.chmod(0o600)
        with relayed(lan.nodes[0], fake.port) as address:
            url = f"pithos+http://{address}{BASE}/alice/vms"
            holder, puller = (LinkedMachine(node, url, "--token-file", token) for node in lan.nodes[1:])
            pulled(os.urandom(DATA_BYTES), holder, puller, lambda: lan.nodes[0].shape(SERVER_MBIT_S))


STORES = ["swift", "sftp", "s3"]


@pytest.mark.parametrize("store", effort.first("stores beside a neighbour", STORES))
def test_devices_of_a_repository_on_a_store_are_neighbours(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as parts:
        if store == "sftp":
            sshd = parts.enter_context(ssh.serving(tmp_path))
            port = sshd.port
        else:
            swift: Swift = request.getfixturevalue("swift")
            port = int(swift.url.rpartition(":")[2])
        lan = parts.enter_context(Lan(3, home=tmp_path))
        address = parts.enter_context(relayed(lan.nodes[0], port))
        holder, puller = lan.nodes[1:]
        if store == "sftp":
            made = url = f"sftp://box{tmp_path}/repository"
            for node in (holder, puller):
                knows(node, sshd, lan.nodes[0])
        else:
            made = f"swift://{address}/neighbours-{store}"
            url = f"s3://neighbours-{store}" if store == "s3" else made
            known = {"ST_AUTH": f"http://{address}/auth/v1.0", "ST_USER": swifts.USER, "ST_KEY": swifts.KEY}
            for name, value in {**known, **swift.s3, "AWS_ENDPOINT_URL": f"http://{address}"}.items():
                monkeypatch.setenv(name, value)
        secret = password_file(tmp_path)
        holder.run(BLOCKSYNC, "repo", "init", made, "--password-file", secret)
        one, other = (LinkedMachine(node, url, "--password-file", secret) for node in (holder, puller))
        pulled(os.urandom(DATA_BYTES), one, other, lambda: lan.nodes[0].shape(SERVER_MBIT_S))


def knows(node: Node, sshd: Sshd, server: Node) -> None:
    """Its ~/.ssh: `box` is the sshd, at the server's address."""
    folder = node.home / ".ssh"
    folder.mkdir()
    key = (sshd.folder / "known_hosts").read_text().replace("127.0.0.1", str(server.ipv4))
    (folder / "known_hosts").write_text(key)
    (folder / "config").write_text(
        f"Host box\n  HostName {server.ipv4}\n  Port {sshd.port}\n  User root\n  IdentityFile {sshd.folder}/client\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n"
    )
