"""Browsers that are told of changes: what they hear, and what becomes of them when there are too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from syncer.ui.live import Streams


async def first(stream: AsyncIterator[bytes], count: int) -> list[bytes]:
    """So many events."""
    return [await anext(stream) for _ in range(count)]


def test_a_browser_hears_of_what_has_changed_only() -> None:
    async def scenario() -> None:
        looks = iter([{"a": "1", "b": "1"}, {"a": "1", "b": "1"}, {"a": "2", "b": "1"}])

        async def pieces() -> Mapping[str, str]:
            return next(looks)

        stream = Streams().tell(pieces)
        _, everything, changed = await first(stream, 3)
        assert everything == b'data: {"a":"1","b":"1"}\n\n'
        assert changed == b'data: {"a":"2"}\n\n'
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_of_too_many_browsers_the_one_that_was_told_longest_ends_and_hears_why() -> None:
    async def scenario() -> None:
        async def pieces() -> Mapping[str, str]:
            return {"a": "1"}

        streams = Streams(most=2)
        oldest, other, newest = (streams.tell(pieces) for _ in range(3))
        for stream in (oldest, other, newest):
            await first(stream, 2)
        assert await first(oldest, 1) == [b"event: full\ndata: \n\n"]
        assert [event async for event in oldest] == []
        assert len(streams) == 2
        for stream in (other, newest):
            await stream.aclose()  # type: ignore[attr-defined]
        assert len(streams) == 0

    asyncio.run(scenario())
