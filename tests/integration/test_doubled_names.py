"""A name that an object and a folder have on a real server, on folders and volumes."""

from __future__ import annotations

import http.client
import os
from pathlib import Path

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import Sync, content


def ask(sync: Sync, root: Path, method: str, name: str, body: bytes = b"") -> int:
    """A request of another client."""
    headers = {"X-Auth-Token": Registry(os.environ).get(os.fsencode(root)).secret()}
    connection = http.client.HTTPConnection(sync.address.removeprefix("http://"), timeout=60)
    connection.request(method, f"/v1/{sync.account}/{sync.container}/{name}", body=body, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_an_object_in_the_place_of_a_folder_that_is_not_empty_gets_another_name(
    sync: Sync, roots: tuple[Path, Path]
) -> None:
    first, second = roots
    (first / "B").mkdir()
    (first / "B" / "c").write_bytes(b"below")
    sync.reconcile(first)
    sync.reconcile(second)
    assert ask(sync, first, "DELETE", "B") == 204
    assert ask(sync, first, "PUT", "B", b"file") == 201
    sync.reconcile(second, expect=4)  # it made the copy
    for root in (first, second, first):
        sync.reconcile(root)
    sync.at_rest(first, second)
    found = content(first)
    assert found == content(second)
    (copy,) = (name for name in found if name.startswith("B (conflict"))
    assert found[copy] == b"file"
    assert found["B/c"] == b"below"
