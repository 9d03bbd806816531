"""The uploading side of one connection: what a peer that has proven a share's key gets of that share, and no more.

    GET ──> waits in line (1,024 at most) ──> a place among the uploads ──> BLOCK, or HEAD DATA … END
     │ CANCEL: out of the line, or no more DATA    └─ none within 0.25 s: BUSY, to all in line
     └ not in the share's index: NOTFOUND

One task reads what the peer says, one sends blocks, one tells of fresh ones. What a peer can make us hold is bounded:
its line, one block or 1 MiB, and the tokens it asked for.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import trio

from blockfs.blocks.ids import BlockId
from syncer.peer.exchange.channel import Channel
from syncer.peer.exchange.limits import Upload, Uploads
from syncer.peer.wire.bodies import TOKEN_BYTES, bitmap_of
from syncer.peer.wire.messages import (
    DATA_BYTES,
    MAX_HAVE_TOKENS,
    Block,
    Busy,
    Cancel,
    Close,
    CloseReason,
    End,
    Get,
    Have,
    HaveQuery,
    HaveReply,
    Head,
    Message,
    Mismatch,
    NotFound,
    Ping,
    data_of,
)
from syncer.ports.blocks import ShareIndex

IDLE_S: Final = 60.0
SEND_S: Final = 20.0  # for half a megabyte: who reads more slowly than that is of no use to itself
LINE: Final = 1024  # requests of one connection
RETRY_MS: Final = 250
SERVED_S: Final = 0.5  # so often we look whether the share is served yet
SENT: Final = 4096  # ids that we know to have sent by a connection: those that may be said to have come wrong
FRESH_S: Final = 0.1  # so often we look for what came in, as long as the peer waits for something
ASKED: Final = 65_536  # tokens for which a peer waits
_READ_BYTES: Final = 1 << 20  # small blocks are read together, up to this
_FLUSH_BYTES: Final = 512 << 10
_PACED_BYTES: Final = 256 << 10  # where bytes a second are limited: who waits for one a second calls it a stall


class Serving:
    """One connection on which a peer asks.

    Args:
        channel: Closed by `run`.
        index: Of the share whose key the peer has proven.
        uploads: Shared by all connections.
        connection: This one, among them.
        is_served: Whether the share is served now: neither paused nor gone.
        scrub: Looks at our copy of a block that came wrong, in a thread.
    """

    def __init__(
        self,
        channel: Channel,
        index: ShareIndex,
        uploads: Uploads,
        connection: Upload,
        is_served: Callable[[], bool],
        scrub: Callable[[BlockId], object] = lambda _: None,
    ) -> None:
        self._channel = channel
        self._index = index
        self._uploads = uploads
        self._connection = connection
        self._is_served = is_served
        self._scrub = scrub
        self._sent: dict[bytes, None] = {}  # the last ones
        self._line: dict[int, Get] = {}  # by rid, in the order in which they came
        self._current: set[int] = set()  # rids that are being sent
        self._cancelled: set[int] = set()  # of these
        self._asked: dict[bytes, None] = {}
        self._since = 0
        self._work, self._waits = trio.Event(), trio.Event()
        self._idle = trio.CancelScope()
        self._why = CloseReason.DONE

    async def run(self) -> CloseReason:
        """Serve until the peer goes, breaks a rule, or says nothing for a minute. Returns why it ended."""
        try:
            with self._idle:
                self._active()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._upload)
                    nursery.start_soon(self._tell)
                    nursery.start_soon(self._end_unserved, nursery.cancel_scope)
                    await self._listen()
                    nursery.cancel_scope.cancel()
        finally:
            await self._channel.close(Close(reason=self._why))
        return self._why

    async def _end_unserved(self, scope: trio.CancelScope) -> None:
        """End the connection when what it is for is served no more: on battery, by a costly link, after a pause."""
        while self._is_served():
            await trio.sleep(SERVED_S)
        self._why = CloseReason.REFUSED
        scope.cancel()

    # --- what the peer says

    async def _listen(self) -> None:
        while messages := await self._channel.receive():
            self._active()
            if not self._is_served():
                self._why = CloseReason.REFUSED
                return
            for message in messages:
                why = await self._hear(message)
                if why is not None:
                    self._why = why
                    return
        if self._channel.failed is not None:
            self._why = CloseReason.PROTOCOL

    async def _hear(self, message: Message) -> CloseReason | None:
        """Returns why the connection ends now."""
        match message:
            case Get(rid=rid):
                if rid in self._line or rid in self._current or len(self._line) >= LINE:
                    return CloseReason.PROTOCOL
                self._line[rid] = message
                self._work.set()
            case Cancel(rid=rid):
                self._line.pop(rid, None)
                self._cancelled |= {rid} & self._current
            case HaveQuery():
                await self._answer(message)
            case Ping(answer=False, number=number):
                await self._say([Ping(number=number, answer=True)])
            case Close():
                return CloseReason.DONE
            case Mismatch(id=block):
                if block in self._sent:  # else anybody might have us hash whatever he likes
                    self._uploads.accused += 1
                    await self._uploads.look(self._scrub, BlockId(block))
                return CloseReason.DONE
            case _:
                return CloseReason.PROTOCOL
        return None

    async def _answer(self, question: HaveQuery) -> None:
        await self._uploads.questions.spend(len(question.tokens))
        held = await self._uploads.look(self._match, question.tokens)
        for token, is_held in zip(question.tokens, held, strict=True):
            if not is_held and len(self._asked) < ASKED:
                self._asked[token] = None
        self._waits.set()
        await self._say([HaveReply(qid=question.qid, bitmap=bitmap_of(held))])

    def _match(self, tokens: Sequence[bytes]) -> list[bool]:
        if not self._asked:
            self._since, _ = self._index.recent(self._since)  # before the look: what comes after it is told
        return self._index.match(tokens)

    # --- what it gets

    async def _upload(self) -> None:
        while True:
            while not self._line:
                self._work = trio.Event()
                await self._work.wait()
            if not await self._uploads.enter(self._connection.address):
                busy = [Busy(rid=rid, retry_ms=RETRY_MS) for rid in self._line]
                self._line.clear()
                self._uploads.refused += len(busy)
                if busy:
                    await self._say(busy)
                continue
            try:
                await self._send_some()
            finally:
                self._uploads.leave(self._connection.address)

    async def _send_some(self) -> None:
        """Send the first of the line, and as many behind it as are read at once."""
        # What the peer still waits for, in its order; it may cancel while we read.
        wanted = list(self._line.values())
        blocks = await self._uploads.look(self._read, [get.id for get in wanted])
        served = [(get, block) for get, block in zip(wanted, blocks, strict=False) if self._line.pop(get.rid, None)]
        self._current = {get.rid for get, _ in served}
        self._cancelled = set()
        self._sent |= dict.fromkeys(get.id for get, block in served if block is not None)
        while len(self._sent) > SENT:
            del self._sent[next(iter(self._sent))]
        batch: list[Message] = []
        size, most = 0, _FLUSH_BYTES if self._uploads.pace.per_s is None else _PACED_BYTES
        for message, length in self._messages(served):
            batch.append(message)
            size += length
            if size >= most:
                await self._send(batch, size)
                batch, size = [], 0
        if batch:
            await self._send(batch, size)
        self._current = set()

    def _messages(self, served: Iterable[tuple[Get, bytes | None]]) -> Iterator[tuple[Message, int]]:
        """What to send, and how many bytes of blocks are in it."""
        is_served = self._is_served()  # once for a mebibyte: it takes as long as a quarter of a small block
        for get, block in served:
            if block is None or get.offset > len(block) or not is_served:
                self._current.discard(get.rid)
                yield NotFound(rid=get.rid), 0
                continue
            if 0 < len(block) <= DATA_BYTES and not get.offset:
                if get.rid not in self._cancelled:
                    self._uploads.sent(self._connection, len(block))
                    self._current.discard(get.rid)
                    yield Block(rid=get.rid, content=block), len(block)
                continue
            yield Head(rid=get.rid, total=len(block)), 0
            for data in data_of(get.rid, block, get.offset):
                if get.rid in self._cancelled:
                    break
                yield data, len(data.content)
            else:
                self._uploads.sent(self._connection, len(block) - get.offset)
                self._current.discard(get.rid)  # who has heard of the end may use its number again
                yield End(rid=get.rid), 0

    def _read(self, ids: Sequence[bytes]) -> list[bytes | None]:
        blocks: list[bytes | None] = []
        size = 0
        for block_id in ids:
            block = self._index.read(BlockId(block_id))
            blocks.append(None if block is None else block.rstrip(b"\0") if block.endswith(b"\0") else block)
            size += len(block or b"")
            if size >= _READ_BYTES:
                break
        return blocks

    # --- what came in since

    async def _tell(self) -> None:
        while True:
            if not self._asked:
                self._waits = trio.Event()
                await self._waits.wait()
            await trio.sleep(FRESH_S)
            self._since, ids = await self._uploads.look(self._index.recent, self._since)
            fresh = [token for token in dict.fromkeys(each[:TOKEN_BYTES] for each in ids) if token in self._asked]
            for token in fresh:
                del self._asked[token]
            if fresh and self._is_served():
                tokens = range(0, len(fresh), MAX_HAVE_TOKENS)
                await self._say([Have(tokens=tuple(fresh[at : at + MAX_HAVE_TOKENS])) for at in tokens])

    # --- sending

    async def _send(self, messages: Sequence[Message], size: int) -> None:
        await self._uploads.pace.spend(size)
        await self._say(messages)

    async def _say(self, messages: Sequence[Message]) -> None:
        """Send; a peer that does not take it in time, or is gone, ends the connection."""
        with trio.move_on_after(SEND_S):
            if await self._channel.send(messages):
                self._active()
                return
        self._idle.cancel()
        await trio.lowlevel.checkpoint()

    def _active(self) -> None:
        self._idle.deadline = trio.current_time() + IDLE_S
