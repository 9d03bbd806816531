"""Structured logs: one JSON object per event, to a file or to stderr."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

MAX_LOG_BYTES: Final = 10 * 1024 * 1024
"""A log file larger than this is renamed to `.1` when the next process opens it: two files bound the space."""


class Log:
    """Where a module's events go: by `log_to`; without it, those that somebody should see to go to stderr.

    structlog, with all that it can be pretty with, is loaded with the first one that is written: a third of a short
    command's start.
    """

    def __init__(self, **bound: object) -> None:
        self._bound = bound

    def bind(self, **bound: object) -> Log:
        """One whose events carry these fields, too."""
        return Log(**self._bound, **bound)

    def debug(self, event: str, **fields: object) -> None:
        """For who looks for a fault."""
        if _least[0] <= logging.DEBUG:
            self._logger().debug(event, **fields)

    def info(self, event: str, **fields: object) -> None:
        """What happens in the course of things."""
        if _least[0] <= logging.INFO:
            self._logger().info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """Somebody should see to it."""
        self._logger().warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        """Something was not done."""
        self._logger().error(event, **fields)

    def exception(self, event: str, **fields: object) -> None:
        """An error with where it came from: the one being handled, or `exc_info`."""
        self._logger().exception(event, **fields)

    def _logger(self) -> Any:
        import structlog  # noqa: PLC0415 - see above

        if not structlog.is_configured():
            log_to(sys.stderr, level=_least[0])
        return structlog.get_logger(**self._bound)


_least: Final = [logging.WARNING]
"""The least that is written, as `log_to` was told last."""


def log_to(stream: TextIO, *, level: int = logging.INFO) -> None:
    """Send events of this process to a stream, as JSON lines; the standard library's warnings too.

    Args:
        stream: Where to.
        level: The least that is written: `logging.DEBUG` to `logging.ERROR`.
    """
    import structlog  # noqa: PLC0415 - as above

    _least[0] = level
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _bytes_as_text,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _LineLogger(stream),
    )
    logging.basicConfig(handlers=[_Bridge()], level=logging.WARNING, force=True)


def log_rarely() -> None:
    """Send warnings and errors to stderr, for a process that hardly ever has one: structlog comes with the first."""
    logging.basicConfig(handlers=[_Bridge()], level=logging.WARNING, force=True)


def open_log(path: bytes) -> TextIO:
    """Open a log file for appending, line-buffered; an oversized one is put aside first.

    Raises:
        OSError: The file can't be opened.
    """
    try:
        if os.lstat(path).st_size > MAX_LOG_BYTES:
            os.replace(path, path + b".1")
    except FileNotFoundError:
        pass
    # Whose the folder is, may have put a link there: what is logged may be names that a user chose.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace")


class _LineLogger:
    """Writes finished lines. Failures are dropped: a full disk or a closed terminal must not stop a filesystem."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    log = debug = info = warning = error = critical = exception = msg


_log = Log()


class _Bridge(logging.Handler):
    """Hands records of libraries (pyfuse3, trio) to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        tell = _log.error if record.levelno >= logging.ERROR else _log.warning
        tell("library.logged", logger=record.name, text=record.getMessage(), exc_info=record.exc_info)


def _bytes_as_text(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Render bytes fields (paths and names) readably."""
    for key, value in event.items():
        if isinstance(value, bytes):
            event[key] = value.decode("utf-8", "backslashreplace")
    return event
