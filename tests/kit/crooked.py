"""The real program with one thing wrong about it, in a process of its own.

    python -m tests.kit.crooked FAULT … -- watch

corrupt     what it serves has one wrong byte
lie         it says it has whatever it is asked for, and has nothing
stall       it takes connections and requests, and sends no block
deaf        it does not notice that the server has something new
blind       it does not notice that a file has changed
clock:S     its wall clock is S seconds ahead
fast:N      N seconds pass for it in one
die:N       SIGKILL at the Nth change that it makes to the directory of a repository: before it, or after it if N is odd
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import trio
import trio.testing

from blockfs.blocks.ids import BlockId


def _corrupt(_: str) -> None:
    from syncer.peer.exchange.serving import Serving  # noqa: PLC0415 - only what is crooked is loaded

    honest = Serving._read

    def read(self: Serving, ids: Sequence[bytes]) -> list[bytes | None]:
        blocks = honest(self, ids)
        return [block and bytes([block[0] ^ 1]) + block[1:] for block in blocks]

    Serving._read = read  # type: ignore[method-assign]


def _lie(_: str) -> None:
    from syncer.peer.exchange.joint import Joint  # noqa: PLC0415

    def match(self: Joint, prefixes: Sequence[bytes]) -> list[bool]:
        del self
        return [True] * len(prefixes)

    def read(self: Joint, block: BlockId) -> None:
        del self, block

    Joint.match, Joint.read = match, read  # type: ignore[method-assign]


def _stall(_: str) -> None:
    from syncer.peer.exchange.serving import Serving  # noqa: PLC0415

    async def upload(self: Serving) -> None:
        del self
        await trio.sleep_forever()

    Serving._upload = upload  # type: ignore[method-assign]


def _deaf(_: str) -> None:
    from syncer.ports.remote import Remote  # noqa: PLC0415
    from syncer.watch.root_task import RootTask  # noqa: PLC0415

    async def watch(self: RootTask, remote: Remote) -> None:
        del self, remote
        await trio.sleep_forever()

    RootTask._watch_remote = watch  # type: ignore[method-assign]


def _blind(_: str) -> None:
    from syncer.watch.root_task import RootTask  # noqa: PLC0415
    from syncer.watch.source import DirtySource  # noqa: PLC0415

    def take(self: RootTask, source: DirtySource) -> None:
        del self
        source.take()

    RootTask._take = take  # type: ignore[method-assign]


def _clock(seconds: str) -> None:
    real, ahead = time.time, float(seconds)
    time.time = lambda: real() + ahead


def _fast(rate: str) -> None:
    real = trio.run

    def run(*arguments: Any, **options: Any) -> Any:
        return real(*arguments, **options | {"clock": trio.testing.MockClock(rate=float(rate))})

    trio.run = run


class _Mortal:
    """`os`, for a module that writes files: each call that changes something is counted, and one is the last."""

    CHANGES = ("open", "write", "fsync", "rename", "unlink", "mkdir")

    def __init__(self, last: int) -> None:
        self._last = last
        self._calls = itertools.count(1)

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.CHANGES:
            return real

        def counted(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **options)
            is_last = next(self._calls) == self._last
            if is_last and self._last % 2 == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments, **options)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def _die(number: str) -> None:
    from syncer.remote.stores import directory  # noqa: PLC0415

    mortal = _Mortal(int(number))

    def write_all(descriptor: int, data: bytes, offset: int) -> None:
        half = len(data) // 2  # a death between the two leaves a part
        real_write(descriptor, data[:half], offset)
        mortal.fsync(descriptor)
        real_write(descriptor, data[half:], offset + half)

    real_write, directory.write_all = directory.write_all, write_all
    directory.os = mortal  # type: ignore[attr-defined]


FAULTS: dict[str, Callable[[str], None]] = {
    "corrupt": _corrupt,
    "lie": _lie,
    "stall": _stall,
    "deaf": _deaf,
    "blind": _blind,
    "clock": _clock,
    "fast": _fast,
    "die": _die,
}

if __name__ == "__main__":
    at = sys.argv.index("--")
    for fault in sys.argv[1:at]:
        name, _, value = fault.partition(":")
        FAULTS[name](value)
    from syncer.cli.main import run as program

    sys.exit(program(sys.argv[at + 1 :]))
