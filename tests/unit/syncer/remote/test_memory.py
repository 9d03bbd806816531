from __future__ import annotations

import pytest
import trio

from syncer.core.model import Kind, Meta, RelPath, RemoteStat
from syncer.errors import ConflictOnRemoteError
from syncer.remote.http.transport import ReplyLostError
from tests.contract.writing import put_small
from tests.fakes.memory import MemoryClient, MemoryContainer

PATH = RelPath(b"file")
META = Meta(mode=0o600)


async def lose(operation: str, path: RelPath) -> None:
    raise ReplyLostError(f"{operation} {path!r}")


def put(client: MemoryClient) -> None:
    trio.run(put_small, client, PATH, Kind.FILE, b"data", META, None)


def test_a_failure_before_the_effect_leaves_nothing() -> None:
    box = MemoryContainer()
    with pytest.raises(ReplyLostError):
        put(MemoryClient(box, before=lose))
    assert box.objects == {}


def test_a_failure_after_the_effect_leaves_it() -> None:
    box = MemoryContainer()
    with pytest.raises(ReplyLostError):
        put(MemoryClient(box, after=lose))
    assert box.content(box.objects[PATH]) == b"data"


def test_a_change_between_decision_and_effect_is_a_conflict() -> None:
    box = MemoryContainer()

    async def intrude(_operation: str, _path: RelPath) -> None:
        box.put(PATH, kind=Kind.FILE, blocks=box.store_all(b"theirs"), meta=META)

    with pytest.raises(ConflictOnRemoteError):
        put(MemoryClient(box, before=intrude))
    assert box.content(box.objects[PATH]) == b"theirs"


def test_listings_can_be_as_bare_as_those_of_a_plain_pithos() -> None:
    box = MemoryContainer(lists_meta=False)
    client = MemoryClient(box)
    put(client)
    trio.run(put_small, client, RelPath(b"link"), Kind.SYMLINK, b"target", Meta(), None)
    file, link = trio.run(client.list_objects).objects
    assert (file.meta, link.target) == (None, None)
    (full,) = trio.run(client.resolve, [link])
    assert isinstance(full, RemoteStat)
    assert full.target == b"target"


def test_equal_histories_give_equal_containers() -> None:
    """Simulations replay from a seed."""
    boxes = [MemoryContainer(), MemoryContainer()]
    for box in boxes:
        put(MemoryClient(box))
    assert boxes[0] == boxes[1]
