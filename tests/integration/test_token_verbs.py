"""`blocksync token`, beside a server that runs."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.live_server import BLOCKSYNC, ServerProcess
from tests.system.machines import Machines


class House:
    """A server, and who may talk to it."""

    def __init__(self, home: Path) -> None:
        self.machines = Machines(home)
        self.folder = home / "s"
        self.server = ServerProcess([BLOCKSYNC, "serve", str(self.folder), "--listen", "127.0.0.1:0"])
        self.address = self.server.ready_line.removeprefix("listening on http://")

    def token(self, verb: str, *arguments: str, expect: int = 0) -> list[dict[str, object]]:
        ended = self.machines.run("token", verb, self.folder, *arguments, "--json", expect=expect)
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def status(self, secret: str, account: str) -> int:
        line = http.client.HTTPConnection(self.address, timeout=60)
        line.request("HEAD", f"/v1/{account}", headers={"X-Auth-Token": secret})
        status = line.getresponse().status
        line.close()
        return status

    def renewed(self, expected: str) -> None:
        """Waits for the line that says so."""
        assert self.server.process.stderr is not None
        assert next(line for line in self.server.process.stderr if expected in line)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    with made.server:
        yield made
    made.machines.close()


def test_a_token_counts_and_is_taken_back_while_the_server_runs(house: House) -> None:
    """Breaks when a restart is needed, or when a connection outlives its token."""
    [made] = house.token("new", "ann", "--expires", "12h", "--quota", "1GiB")
    house.renewed("tokens read again: 2")
    secret = str(made["token"])
    held = http.client.HTTPConnection(house.address, timeout=60)
    held.request("HEAD", "/v1/ann", headers={"X-Auth-Token": secret})
    reply = held.getresponse()
    reply.read()
    assert (reply.status, reply.headers["X-Account-Policy-Quota"]) == (204, str(1 << 30))

    default, listed = house.token("list")
    assert (default["account"], default["expires"], default["quota"]) == ("default", None, None)
    assert listed == {key: value for key, value in made.items() if key != "token"}
    assert listed["expired"] is False

    [gone] = house.token("revoke", str(made["id"])[:6])
    assert gone["id"] == made["id"]
    house.renewed("tokens read again: 1")
    assert house.status(secret, "ann") == 401
    assert held.sock.recv(100) == b""
    held.close()


def test_the_connections_of_a_token_that_ends_end(house: House) -> None:
    [made] = house.token("new", "bob", "--expires", "4s")
    house.renewed("tokens read again: 2")
    held = http.client.HTTPConnection(house.address, timeout=60)
    held.request("HEAD", "/v1/bob", headers={"X-Auth-Token": str(made["token"])})
    held.getresponse().read()
    assert held.sock.recv(100) == b""  # waits for it
    held.close()
    assert house.status(str(made["token"]), "bob") == 401


def test_a_token_for_figures_counts_and_is_taken_back_while_the_server_runs(house: House) -> None:
    [made] = house.token("new", "/metrics", "--expires", "1d")
    house.renewed("tokens read again: 2")
    secret = str(made["token"])
    held = http.client.HTTPConnection(house.address, timeout=60)
    held.request("GET", "/metrics", headers={"Authorization": f"Bearer {secret}"})
    reply = held.getresponse()
    assert (reply.status, b"blocksync_server_tokens 2.0" in reply.read()) == (200, True)
    assert house.status(secret, "default") == house.status(secret, "%2Fmetrics") == 401
    house.token("revoke", str(made["id"]))
    house.renewed("tokens read again: 1")
    assert held.sock.recv(100) == b""
    held.close()
    held.request("GET", "/metrics", headers={"Authorization": f"Bearer {secret}"})
    assert held.getresponse().status == 401
    held.close()


def test_the_line_of_a_new_token_is_a_clients_token_file(house: House, tmp_path: Path) -> None:
    line = house.machines.run("token", "new", house.folder).stdout
    (tmp_path / "t").write_text(line)
    house.renewed("tokens read again: 2")
    (tmp_path / "f").mkdir()
    url = f"pithos+http://{house.address}/v1/default/c"
    house.machines.run("link", tmp_path / "f", url, "--token-file", tmp_path / "t")


def _told(house: House, tmp_path: Path) -> list[tuple[tuple[str, ...], int, str]]:
    only = house.token("list")[0]["id"]
    return [
        (("new", str(house.folder), "a/b"), 2, "no account name"),
        (("new", str(house.folder), "ann", "--expires", "soon"), 2, "not a span of time"),
        (("new", str(house.folder), "ann", "--expires", "0"), 2, "--expires 0"),
        (("new", str(house.folder), "ann", "--quota", "0"), 2, "--quota"),
        (("new", str(house.folder), "/metrics", "--quota", "1GiB"), 2, "it has no quota"),
        (("new", str(house.folder), "/metrics/"), 2, "no account name"),
        (("list", str(tmp_path / "none")), 10, "does not exist"),
        (("revoke", str(house.folder), "fff"), 10, "no token fff"),
        (("revoke", str(house.folder), str(only)), 2, "the only token"),
    ]


def test_wrong_input_is_told_and_changes_nothing(house: House, tmp_path: Path) -> None:
    before = (house.folder / "token").read_text()
    for arguments, code, text in _told(house, tmp_path):
        assert text in house.machines.run("token", *arguments, expect=code).stderr
    assert (house.folder / "token").read_text() == before
