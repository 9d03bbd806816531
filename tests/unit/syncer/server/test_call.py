"""One request's way to the store and back."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from typing import cast

import pytest
from starlette.requests import Request
from starlette.types import Message

from syncer.server.budget import Budgets, Purse
from syncer.server.calls.call import Call, StreamedResponse
from syncer.server.errors import PreconditionFailed, Refusal
from syncer.server.http.urls import parse_target
from syncer.server.store.store import Store


class Body(bytearray):
    """What can be watched going."""


def test_nothing_of_a_refused_request_stays_until_python_looks_for_cycles() -> None:
    """A hundred refused writes of 1 MB were 100 MB, bulks of 30 MB gigabytes: no account's bound knew of them."""
    seen = []

    def refuse(body: Body) -> None:
        seen.append(weakref.ref(body))
        raise PreconditionFailed("Precondition failed")

    async def answer() -> str:
        call = Call(
            request=cast("Request", None),
            target=parse_target(b"/alice/c/o", b""),
            account="alice",
            length=0,
            store=cast("Store", None),
            purse=Purse(Budgets(), "alice"),
            needs=(),
        )
        try:
            await call.run(refuse, Body())
        except Refusal as refusal:  # pytest.raises would be in a cycle with it itself
            return str(refusal)
        return ""

    before = set(threading.enumerate())
    gc.disable()
    try:
        assert asyncio.run(answer()) == "Precondition failed"
        for worker in set(threading.enumerate()) - before:
            worker.join()  # it ends with the loop, and has the body in its hands until then
        assert [reference() for reference in seen] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize("waits_for_client", [True, False])
def test_nothing_of_a_reply_that_was_given_up_stays_until_python_looks_for_cycles(*, waits_for_client: bool) -> None:
    """A hundred downloads that were given up were 100 MB."""
    seen = []

    async def body() -> AsyncIterator[memoryview]:
        piece = memoryview(b"piece")
        seen.append(weakref.ref(piece))
        yield piece
        await asyncio.Event().wait()  # for the disk

    async def answer() -> None:
        sent = asyncio.Event()

        async def send(message: Message) -> None:
            if message.get("body"):
                sent.set()
                if waits_for_client:
                    await asyncio.Event().wait()

        async def receive() -> Message:
            await sent.wait()
            return {"type": "http.disconnect"}

        await StreamedResponse(body())({"type": "http"}, receive, send)

    gc.disable()
    try:
        asyncio.run(answer())
        assert [reference() for reference in seen] == [None]
    finally:
        gc.enable()
