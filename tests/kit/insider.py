"""Somebody with a share's key and no manners: connects to a peer and says what a test wants, without having been asked.

For the calling thread, in the namespace of a node.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from blockfs.blocks.ids import BlockId
from syncer.cli.registry.roots import Registry
from syncer.cli.session.opening import key_keeper
from syncer.peer.wire.handshake import REPLY_BYTES, Dialled
from syncer.peer.wire.keys import derive, epoch_of
from syncer.peer.wire.messages import Block, End, Get, HaveQuery, HaveReply, Message, NotFound
from syncer.peer.wire.records import Secured
from tests.kit.netns import INTERFACE, PATIENCE_S, Node
from tests.kit.program import Machine


def key_of(machine: Machine, root: Path | None = None) -> bytes:
    """The present key of the share of a machine's root, 32 bytes."""
    linked = Registry(machine.node.environment).get(os.fsencode(root or machine.root))
    return key_keeper(linked).keys_now()[0].raw


@contextmanager
def dialled(node: Node, at: Node, port: int) -> Iterator[socket.socket]:
    """A connection from one node to another's link-local address."""
    with node.inside():
        made = socket.socket(socket.AF_INET6)
        with made:
            made.settimeout(PATIENCE_S)
            made.connect((at.link_local, port, 0, socket.if_nametoindex(INTERFACE)))
            yield made


class Insider:
    """One connection after its handshake."""

    def __init__(self, connection: socket.socket, key: bytes) -> None:
        """Shake hands with this key.

        Raises:
            ConnectionError: It is not let in.
        """
        self._connection = connection
        handshake = Dialled(derive(key, epoch_of(time.time())), os.urandom(16), os.urandom(32))
        connection.sendall(handshake.greeting)
        reply = b""
        while len(reply) < REPLY_BYTES:
            piece = connection.recv(REPLY_BYTES - len(reply))
            if not piece:
                raise ConnectionResetError
            reply += piece
        codec = handshake.answered(reply)
        if not isinstance(codec, Secured):
            raise ConnectionResetError(codec)
        self._codec = codec

    def say(self, *messages: Message) -> None:
        """Send them."""
        self._connection.sendall(b"".join(bytes(self._codec.send(message)) for message in messages))

    def hear(self) -> list[Message]:
        """What comes next; nothing: it was let go."""
        messages: list[Message] = []
        while not messages:
            try:
                piece = self._connection.recv(1 << 16)
            except ConnectionResetError:
                break
            if not piece:
                break
            messages = self._codec.receive(piece)
        return messages

    def offered(self, blocks: Sequence[BlockId]) -> list[bool]:
        """Which of these it says it has."""
        self.say(HaveQuery(qid=1, tokens=tuple(block[:8] for block in blocks)))
        reply = self.hear()[0]
        assert isinstance(reply, HaveReply)
        return [bool(reply.bitmap[each // 8] >> each % 8 & 1) for each in range(len(blocks))]

    def gets(self, block: BlockId) -> bool:
        """Whether it is given a block that it asks for, whatever was offered."""
        self.say(Get(rid=1, id=block, offset=0))
        while messages := self.hear():
            if any(isinstance(message, NotFound) for message in messages):
                return False
            if any(isinstance(message, End | Block) for message in messages):
                return True
        raise ConnectionResetError("let go")
