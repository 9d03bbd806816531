"""Which locks of a mount are taken while which others are held."""

from __future__ import annotations

import linecache
import re
import sys
import threading
from _thread import RLock
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from blockfs.engine.fatal import EngineLock

Edge = tuple[str, str]

_real_lock = threading.Lock


class Order:
    """Notes, for each lock that is taken, the locks that its thread holds then.

    Attributes:
        edges: (held, taken), each with the stack that was the first to do it.
    """

    def __init__(self) -> None:
        self.edges: dict[Edge, str] = {}
        self._held = threading.local()

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """From here on blockfs makes locks that tell."""
        order = self

        def enter(lock: Any) -> bool:
            order.taken("engine")
            return RLock.__enter__(lock)

        leave: Callable[..., None] = EngineLock.__exit__

        def exit_(
            lock: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            order.left("engine")
            leave(lock, kind, error, trace)

        patch.setattr(EngineLock, "__enter__", enter, raising=False)
        patch.setattr(EngineLock, "__exit__", exit_)
        patch.setattr(threading, "Lock", self._make)

    def taken(self, name: str) -> None:
        stack = self._stack()
        for held in stack:
            if held != name and name not in stack and (held, name) not in self.edges:
                self.edges[held, name] = _where()
        stack.append(name)

    def left(self, name: str) -> None:
        stack = self._stack()
        if name in stack:  # it was made, or taken, before anybody watched
            stack.reverse()
            stack.remove(name)
            stack.reverse()

    def _stack(self) -> list[str]:
        if not hasattr(self._held, "names"):
            self._held.names = []
        names: list[str] = self._held.names
        return names

    def _make(self) -> Any:
        frame = sys._getframe(1)
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("blockfs."):
            return _real_lock()
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        attribute = re.match(r"\s*(?:self\.)?(\w+)", line)
        assert attribute is not None
        return _Lock(self, f"{module.rpartition('.')[2]}.{attribute[1].lstrip('_')}")


class _Lock:
    def __init__(self, order: Order, name: str) -> None:
        self._order = order
        self._name = name
        self._lock = _real_lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        done = self._lock.acquire(blocking, timeout)
        if done:
            self._order.taken(self._name)
        return done

    def release(self) -> None:
        self._order.left(self._name)
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _where() -> str:
    frame, lines = sys._getframe(2), []
    while frame is not None and len(lines) < 14:
        lines.append(f"{frame.f_code.co_filename.rpartition('blockfs/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment] # the loop ends then
    return " < ".join(lines)
