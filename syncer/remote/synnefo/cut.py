"""Objects that a plain Pithos has cut within a block: `kamaki file truncate` leaves that block the id of what it was.

The store still has the block whole. Bytes that have its id, and begin as the object ends, prove what the object has of
it. They are read from an earlier version of the object. If there is none, from an object that names this block and
nothing else: we make it for a moment, and no content travels to the server for that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from blockfs.runtime.output import shown
from syncer.core.model import NO_META, RelPath, RemoteTag
from syncer.errors import ConflictOnRemoteError, CorruptionError, CutObjectError
from syncer.protocol.pithos.listing import ObjectRow
from syncer.remote.container.conditions import describe
from syncer.remote.container.requests import object_name
from syncer.remote.container.runs import Run, runs
from syncer.remote.container.session import Session
from syncer.remote.http.transport import Reply

WHOLE_FOLDER: Final = ".blocksync/whole"
"""Where such an object is for a moment: its name is the id, so that whoever finds one knows what it is."""

_EARLIER: Final = 8  # versions that are looked at: the one before has it, mostly
_TRIES: Final = 3  # who lists the container meanwhile takes our object for one that was left there
_REFUSED: Final = (400, 403, 405, 409, 411, 413, 422, 501)  # of this object alone; anything else concerns the server


class WrongBlockError(CorruptionError):
    """A block of an object does not have its id, however often it is read.

    Attributes:
        index: Which block.
    """

    def __init__(self, message: str, index: int) -> None:
        self.index = index
        super().__init__(message)


class CutObjects:
    """Tells objects that were cut from damaged ones."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def explain(
        self, path: RelPath, tag: RemoteTag, blocks: BlockList, wrong: WrongBlockError
    ) -> CorruptionError:
        """Find out why a block is wrong. May write for a moment: not for who only looks (a dry run).

        Args:
            path: The object.
            tag: Its version.
            blocks: What `block_list(path, tag)` returned.
            wrong: What reading it ended with.

        Returns:
            CutObjectError if it is proved that the object was cut; else what is known, and what to do.

        Raises:
            ConflictOnRemoteError: That version is no longer readable, or others keep taking our object away.
        """
        if wrong.index != len(blocks) - 1 or (await self._session.info()).atomic:
            return wrong
        (last,) = runs([wrong.index], blocks.size_bytes, blocks.block_size, blocks.block_size)
        here = await self._read(object_name(path), tag.version, last)
        if here is None:
            raise ConflictOnRemoteError(path, describe(tag), "nothing readable")
        block = blocks[wrong.index]
        whole = await self._earlier(object_name(path), tag, last, block) or await self._in_store(path, last, blocks)
        if isinstance(whole, CorruptionError):
            return whole
        is_begin = len(here) == last.length_bytes and whole[: len(here)] == here
        return CutObjectError(path, here) if is_begin and block_id(whole) == block else wrong

    async def forget_left(self, hidden: Sequence[ObjectRow]) -> None:
        """Delete objects of ours that a crash has left, as a listing shows them."""
        for row in hidden:
            if re.fullmatch(f"{re.escape(WHOLE_FOLDER)}/{row.state.etag}", row.name):
                await self._delete(row.name)

    async def _earlier(self, name: str, tag: RemoteTag, last: Run, block: BlockId) -> bytes | None:
        """The block from an earlier version that has it whole."""
        listed = await self._session.ask(self._session.make.versions(name), 200, 404)
        versions = self._session.judge.versions(listed) if listed.status == 200 else []
        block_size = (await self._session.info()).block_size
        for version in reversed([each for each in versions if each < tag.version][-_EARLIER:]):
            old = await self._session.current(name, version)
            if old is not None and old.state.size_bytes > tag.size_bytes:
                (run,) = runs([last.first], old.state.size_bytes, block_size, block_size)
                whole = await self._read(name, version, run)
                if whole is not None and block_id(whole) == block:
                    return whole
        return None

    async def _in_store(self, path: RelPath, last: Run, blocks: BlockList) -> bytes | CorruptionError:
        """The block from an object that names it alone."""
        block, block_size = blocks[last.first], blocks.block_size
        name = f"{WHOLE_FOLDER}/{block.hex()}"
        alone = BlockList(block_size=block_size, size_bytes=block_size, ids=bytes(block))
        put = self._session.make.put_hashmap(name, alone, NO_META, {})
        for _ in range(_TRIES):
            reply = await self._session.ask(put, 201, 202, *_REFUSED)
            if reply.status in _REFUSED:
                return self._unproved(path, last, alone, reply)
            whole = await self._read(name, None, Run(first=0, count=1, start=0, length_bytes=block_size))
            await self._delete(name)
            if whole is not None:
                return whole
        raise ConflictOnRemoteError(path, "an object with its last block", "none: others delete it")

    def _unproved(self, path: RelPath, last: Run, alone: BlockList, reply: Reply) -> CorruptionError:
        """Why it is not known what the object has of a block, and what to do."""
        judge, block = self._session.judge, alone[0]
        if reply.status == 403:
            advice = (
                "this token may not find that out (403): sync it once with a token of its owner, or have the file "
                "uploaded again"
            )
        elif reply.status == 409 and block in judge.lacking(reply):
            advice = "the server no longer has that block, so nobody can tell: upload the file again"
        elif reply.status == 413:
            advice = f"to find that out, make room there for an object of {alone.size_bytes} bytes (413)"
        else:
            advice = f"the server refuses what would tell ({reply.status}): upload the file again"
        return CorruptionError(
            f"{shown(path)} on {judge.container}: its last {last.length_bytes} bytes do not have the id {block.hex()}. "
            f"They are damaged, or the object was cut there (kamaki's `file truncate`); {advice}"
        )

    async def _read(self, name: str, version: int | None, run: Run) -> bytes | None:
        """A range of a version, or of what is there now; None if it is gone."""
        reply = await self._session.ask(self._session.make.read_run(name, version, run), 206, 200, 404)
        return None if reply.status == 404 else reply.body

    async def _delete(self, name: str) -> None:
        """Also where only the owner may delete: it has nothing that the container had not."""
        await self._session.ask(self._session.make.delete(name, {}), 204, 200, 403, 404)
