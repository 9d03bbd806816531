"""The batcher: company without waiting for it, every change its own fate."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from syncer.errors import OverQuotaError, RemoteUnavailableError
from syncer.protocol.extensions.bulk import MAX_CONTENT_BYTES, MAX_OPERATIONS, Delete, Operation, Put, Result
from syncer.remote.http.transport import Reply, ReplyLostError
from syncer.remote.pithos.batch import Batcher


class Line:
    """A server behind a gate."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = trio.Event()
        self.error: Exception | None = None
        self.batcher = Batcher(self._many)

    async def _pass(self, names: list[str]) -> None:
        self.batches.append(names)
        await self.gate.wait()
        if self.error is not None:
            raise self.error

    async def _many(self, operations: Sequence[Operation]) -> Sequence[Result]:
        await self._pass([operation.name for operation in operations])
        return [
            Result(status=412, message="no") if one.name.endswith("!") else Result(status=204, version=5)
            for one in operations
        ]

    async def ask(self, name: str, data: bytes | None = None) -> Reply:
        async def alone() -> Reply:
            await self._pass([name])
            return Reply(status=200, headers={}, body=name.encode())

        operation = Delete(name=name) if data is None else Put(name=name, data=data, meta={})
        return await self.batcher.send(operation, alone)


def test_one_change_goes_alone_and_at_once() -> None:
    async def main() -> None:
        line = Line()
        line.gate.set()
        assert (await line.ask("a")).body == b"a"
        assert line.batches == [["a"]]

    trio.run(main)


def test_of_a_request_that_is_too_long_each_change_goes_alone_and_has_its_own_fate() -> None:
    """Breaks when one that is too large takes along all that came with it."""
    said: dict[str, str] = {}

    async def main() -> None:
        async def many(operations: Sequence[Operation]) -> Sequence[Result]:
            said[" ".join(sorted(one.name for one in operations))] = "too long"
            raise OverQuotaError("all")

        batcher = Batcher(many)

        async def ask(name: str) -> None:
            async def alone() -> Reply:
                if name == "large":
                    raise OverQuotaError(name)
                return Reply(status=200, headers={}, body=name.encode())

            try:
                said[name] = (await batcher.send(Put(name=name, data=b"", meta={}), alone)).body.decode()
            except OverQuotaError as error:
                said[name] = f"{error} is too large"

        async with trio.open_nursery() as nursery:
            for name in ("large", "one", "two"):
                nursery.start_soon(ask, name)

    trio.run(main)
    together = "large one two"
    assert said == {together: "too long", "large": "large is too large", "one": "one", "two": "two"}


def test_what_comes_meanwhile_goes_together() -> None:
    async def main() -> None:
        line, replies = Line(), {}

        async def ask(name: str) -> None:
            replies[name] = (await line.ask(name)).status

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(ask, f"first{number}")
                await trio.testing.wait_all_tasks_blocked()
            for number in range(MAX_OPERATIONS + 10):
                nursery.start_soon(ask, f"{number}!" if number % 2 else f"{number}")
            await trio.testing.wait_all_tasks_blocked()
            assert [len(batch) for batch in line.batches] == [1, 1, 1, 1]
            line.gate.set()
        assert sorted(len(batch) for batch in line.batches[4:]) == [10, MAX_OPERATIONS]
        assert len(replies) == 4 + MAX_OPERATIONS + 10
        assert all(status == (412 if name.endswith("!") else 204) for name, status in list(replies.items())[4:])

    trio.run(main)


def test_contents_of_a_request_are_bounded() -> None:
    async def main() -> None:
        line = Line()
        async with trio.open_nursery() as nursery:
            for number in range(9):
                nursery.start_soon(line.ask, str(number), bytes(MAX_CONTENT_BYTES // 3))
            await trio.testing.wait_all_tasks_blocked()
            assert max(len(batch) for batch in line.batches) == 3
            line.gate.set()

    trio.run(main)


@pytest.mark.parametrize("error", [ReplyLostError("lost"), RemoteUnavailableError("down")])
def test_all_in_a_request_share_its_failure(error: Exception) -> None:
    async def main() -> None:
        line, heard = Line(), []
        line.error = error

        async def ask(name: str) -> None:
            with pytest.raises(type(error)):
                await line.ask(name)
            heard.append(name)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, str(number))
            await trio.testing.wait_all_tasks_blocked()
            line.gate.set()
        assert len(heard) == 20

    trio.run(main)


@pytest.mark.parametrize("victim", range(6))
def test_a_cancelled_change_leaves_nobody_waiting(victim: int) -> None:
    """Whether it waits, is about to send, or sends for others: they get a reply, or hear that it is in doubt."""

    async def main() -> None:
        line, heard = Line(), []
        scopes = [trio.CancelScope() for _ in range(6)]

        async def ask(number: int) -> None:
            with scopes[number]:
                with contextlib.suppress(ReplyLostError):
                    await line.ask(str(number))
                heard.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(ask, number)
            await trio.testing.wait_all_tasks_blocked()
            scopes[victim].cancel()
            await trio.testing.wait_all_tasks_blocked()
            line.gate.set()
        assert sorted(heard) == [number for number in range(6) if number != victim]

    trio.run(main)


def test_cancelled_before_the_first_step() -> None:
    async def main() -> None:
        line, heard = Line(), []
        scope = trio.CancelScope()

        async def first() -> None:
            with scope:
                await line.ask("first")

        async def second() -> None:
            await line.ask("second")
            heard.append("second")

        line.gate.set()
        scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            nursery.start_soon(second)
        assert heard == ["second"]

    trio.run(main)
