"""What `?changes` asks for: the answer, or a wait for the first change that holds no thread."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine

import anyio
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from syncer.protocol.extensions.changes import ChangesPage, encode_changes
from syncer.server.calls.call import JSON, Call, reply
from syncer.server.calls.containers import lasting_fields
from syncer.server.catalogue.orders import ChangesOrder
from syncer.server.http.container_orders import WaitOrder


async def get_changes(call: Call, order: WaitOrder) -> Response:
    """What changed in a container, or what does within the time."""
    if order.wait_s == 0:
        _, page = await _look(call, order.changes)
    else:
        page = await _unless_gone(call, _changed(call, order.changes, order.wait_s))
    return reply(200, encode_changes(page), content_type=JSON, fields=lasting_fields(call, page.identity))


async def _unless_gone(call: Call, answer: Coroutine[None, None, ChangesPage]) -> ChangesPage:
    """Wait for the answer only as long as somebody waits for it."""

    async def gone() -> None:
        while (await call.request.receive())["type"] != "http.disconnect":
            pass  # a GET has no body: nothing but the client's going can arrive

    tasks = asyncio.ensure_future(answer), asyncio.ensure_future(gone())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        raise ClientDisconnect
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _look(call: Call, order: ChangesOrder) -> tuple[int, ChangesPage]:
    await call.reserve()
    found = await call.run(call.store.changes, call.target.account, call.target.container, order)
    if not _tells(found[1]):
        call.purse.keep(0)  # it may wait for minutes
    return found


async def _changed(call: Call, order: ChangesOrder, wait_s: float) -> ChangesPage:
    """What changed, as soon as anything has, or nothing after the time."""
    notifier = call.store.notifier
    container_id, page = await _look(call, order)
    if _tells(page):
        return page
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(woken.set)

    deadline = time.monotonic() + wait_s
    with notifier.listening(container_id, wake):
        while True:
            # After the listening has begun: what was committed before is seen, all else rings.
            _, page = await _look(call, order)
            if _tells(page) or notifier.closed:
                return page
            with anyio.move_on_after(deadline - time.monotonic()) as scope:
                await woken.wait()
            if scope.cancelled_caught:
                return page
            woken.clear()


def _tells(page: ChangesPage) -> bool:
    return bool(page.objects or page.deleted or page.moves)
