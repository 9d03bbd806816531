"""Trying again: what may be repeated is, what may have happened is looked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from syncer.errors import CorruptionError, NotFoundError, RemoteUnavailableError
from syncer.remote.http.retry import GaveUpError, Retry, RetryPolicy
from syncer.remote.http.transport import ReplyLostError
from syncer.remote.stores.memory import MemoryStore
from syncer.remote.stores.retrying import RetryingStore
from syncer.remote.stores.wrapped import WrappedStore

POLICY = RetryPolicy(attempts=4, first_delay_s=1.0, max_delay_s=4.0, deadline_s=60.0)
Test = Callable[["Shaky", RetryingStore], Awaitable[None]]


class Shaky(WrappedStore):
    """Fails as it is told: before or after it has done what was asked.

    Attributes:
        before: Errors to raise instead of doing it.
        after: Errors to raise when it is done.
    """

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.calls: list[str] = []

    async def _shake(self, what: str, call: Awaitable[Any]) -> Any:
        self.calls.append(what)
        if self.before:
            call.close()
            raise self.before.pop(0)
        result = await call
        if self.after:
            raise self.after.pop(0)
        return result

    async def get(self, *args: Any, **kwargs: Any) -> bytes:
        return await self._shake("get", self.inner.get(*args, **kwargs))

    async def put(self, *args: Any, **kwargs: Any) -> bool:
        return await self._shake("put", self.inner.put(*args, **kwargs))

    async def wait(self, *args: Any) -> object:
        return await self._shake("wait", self.inner.wait(*args))


def using(test: Test) -> None:
    async def main() -> None:
        shaky = Shaky()
        await test(shaky, RetryingStore(shaky, Retry(policy=POLICY, draw=lambda: 0.5, host="the store")))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_what_fails_for_a_while_is_done_in_the_end() -> None:
    async def test(shaky: Shaky, store: RetryingStore) -> None:
        shaky.before = [RemoteUnavailableError("1"), ReplyLostError("2"), RemoteUnavailableError("3")]
        assert await store.put("x", b"data")
        shaky.before = [RemoteUnavailableError("4")]
        assert await store.get("x") == b"data"

    using(test)


def test_patience_ends_and_what_is_of_no_use_is_not_repeated() -> None:
    async def test(shaky: Shaky, store: RetryingStore) -> None:
        shaky.before = [RemoteUnavailableError("down")] * 9
        with pytest.raises(GaveUpError, match="down"):
            await store.get("x")
        assert len(shaky.calls) == 4
        shaky.before, shaky.calls = [], []
        with pytest.raises(NotFoundError):
            await store.get("x")
        assert len(shaky.calls) == 1

    using(test)


def test_a_write_whose_reply_was_lost_is_looked_for_before_it_is_made_again() -> None:
    """Breaks when a head is written twice, the second time perhaps over a newer one."""

    async def test(shaky: Shaky, store: RetryingStore) -> None:
        shaky.after = [ReplyLostError("gone")]
        assert await store.put("heads/x", [b"da", b"ta"])
        assert shaky.calls == ["put", "get"]

        shaky.calls, shaky.before = [], [ReplyLostError("never arrived")]
        assert await store.put("heads/x", b"newer")
        assert shaky.calls == ["put", "get", "put"]
        assert await store.get("heads/x") == b"newer"

    using(test)


def test_what_is_named_by_its_content_is_simply_written_again() -> None:
    async def test(shaky: Shaky, store: RetryingStore) -> None:
        shaky.after = [ReplyLostError("gone")]
        assert not await store.put("packs/x", b"data", absent=True)  # it is there, and it does not matter by whom
        assert shaky.calls == ["put", "put"]

    using(test)


def test_what_comes_damaged_is_read_once_more() -> None:
    async def test(shaky: Shaky, store: RetryingStore) -> None:
        await store.put("x", b"data")
        shaky.before = [CorruptionError("flipped")]
        assert await store.get("x") == b"data"
        shaky.before = [CorruptionError("flipped"), CorruptionError("flipped again")]
        with pytest.raises(CorruptionError, match="again"):
            await store.get("x")

    using(test)


def test_a_wait_goes_on_after_failures_however_long_it_lasts() -> None:
    async def test(shaky: Shaky, store: RetryingStore) -> None:
        seen = await store.wait("heads/", None)
        shaky.before = [RemoteUnavailableError("1"), RemoteUnavailableError("2")]
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                await trio.sleep(100 * POLICY.deadline_s)
                await store.put("heads/x", b"1")

            nursery.start_soon(write)
            assert await store.wait("heads/", seen) != seen
        shaky.before = [RemoteUnavailableError("down")] * 9
        with pytest.raises(GaveUpError):
            await store.wait("heads/", None)

    using(test)
