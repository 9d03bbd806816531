"""A name that an object and a folder have on a real server, on folders and volumes."""

from __future__ import annotations

import http.client
import os
from pathlib import Path

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import Sync, content


def ask(commands: Sync, root: Path, method: str, name: str, body: bytes = b"") -> int:
    """A request of another client."""
    headers = {"X-Auth-Token": Registry(os.environ).get(os.fsencode(root)).token()}
    connection = http.client.HTTPConnection(commands.address.removeprefix("http://"), timeout=60)
    connection.request(method, f"/v1/default/{commands.container}/{name}", body=body, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_an_object_in_the_place_of_a_folder_that_is_not_empty_gets_another_name(
    commands: Sync, roots: tuple[Path, Path]
) -> None:
    first, second = roots
    (first / "B").mkdir()
    (first / "B" / "c").write_bytes(b"below")
    commands.reconcile(first)
    commands.reconcile(second)
    assert ask(commands, first, "DELETE", "B") == 204
    assert ask(commands, first, "PUT", "B", b"file") == 201
    commands.reconcile(second, expect=4)  # it made the copy
    for root in (first, second, first):
        commands.reconcile(root)
    commands.at_rest(first, second)
    found = content(first)
    assert found == content(second)
    (copy,) = (name for name in found if name.startswith("B (conflict"))
    assert found[copy] == b"file"
    assert found["B/c"] == b"below"
