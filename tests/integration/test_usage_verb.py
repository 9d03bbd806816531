"""`blocksync usage`, beside a server that runs: what the page's *Server* shows, in the same words."""

from __future__ import annotations

import http.client
import json
import os
import re
from pathlib import Path

from tests.integration.live_server import BLOCKSYNC, ServerProcess
from tests.system.machines import Machines


def test_versions_of_containers_are_told_while_the_server_runs_and_after(tmp_path: Path) -> None:
    machines, folder = Machines(tmp_path), tmp_path / "s"
    with ServerProcess([BLOCKSYNC, "serve", str(folder), "--listen", "127.0.0.1:0"]) as server:
        line = http.client.HTTPConnection(server.address, timeout=60)
        secret = (folder / "token").read_text().split()[0]

        def ask(method: str, path: str, body: bytes = b"") -> None:
            line.request(method, f"/v1/default/{path}", body, headers={"X-Auth-Token": secret})
            reply = line.getresponse()
            assert reply.status in range(200, 300), reply.read()
            reply.read()

        ask("PUT", "notes")
        for body in (b"1", b"22", b"333"):
            ask("PUT", "notes/a", body)
        ask("PUT", "notes/b", b"4444")
        ask("DELETE", "notes/b")
        told = [json.loads(each) for each in machines.run("usage", folder, "--json").stdout.splitlines()]
        line.close()
    usage, account, container = told
    assert (usage["type"], usage["directory"], usage["versions"]) == ("usage", str(folder), 5)
    assert (account["account"], account["size_bytes"], account["quota"]) == ("default", 3, None)
    figures = ("container", "objects", "size_bytes", "versions", "old_bytes", "is_counted")
    assert [container[each] for each in figures] == ["notes", 1, 3, 4, 7, True]
    assert re.search(r"\b1 +3 B +4 +7 B .* default +notes", machines.run("usage", folder).stdout)


def test_a_folder_that_is_no_servers_is_refused(tmp_path: Path) -> None:
    ended = Machines(tmp_path).run("usage", tmp_path, expect=10)
    assert "is no server's" in ended.stderr
    assert not list(tmp_path.glob("catalogue*"))


def test_a_folder_whose_name_is_no_utf8_is_served_and_told(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    with ServerProcess([BLOCKSYNC, "serve", str(folder), "--listen", "127.0.0.1:0", "--json"]) as server:
        assert json.loads(server.ready_line)["token_file"].endswith("caf\\xe9/token")
        told = Machines(tmp_path).run("usage", folder, "--json").stdout.splitlines()
    assert json.loads(told[0])["directory"].endswith("caf\\xe9")
