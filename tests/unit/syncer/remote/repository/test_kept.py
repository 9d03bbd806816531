"""Objects that are written once, on stores that lose replies."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from syncer.remote.repository.kept import Kept
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.port import Blob


class Forgetful(MemoryStore):
    """A Swift whose object server ended before it told the container: the retry finds the object, no listing does."""

    is_listed = False

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        self.is_listed = not absent
        await super().put(name, data)
        return not absent

    async def listing(self, *prefixes: str) -> list[Blob]:
        return await super().listing(*prefixes) if self.is_listed else []


def test_what_is_there_after_a_lost_reply_is_put_again_so_that_it_is_listed() -> None:
    async def scenario() -> None:
        store = Forgetful()
        await Kept(store, None).put("indexes/one", b"data")
        assert [blob.name for blob in await store.listing("indexes/")] == ["indexes/one"]

    trio.run(scenario)
