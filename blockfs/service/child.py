"""Work on a volume in a process of its own, so that somebody is left to say what killed it: see `pages`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TypeVar

import msgspec

from blockfs.engine.volume import Volume
from blockfs.errors import EXPECTED, BlockfsError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import code_of, said
from blockfs.runtime.linux import die_with_parent
from blockfs.service.pages import refuse_damaged_index, refuse_damaged_tree

Result = TypeVar("Result")


class ChildError(BlockfsError):
    """What a child process failed with; carries its exit code."""

    def __init__(self, exit_code: int, message: str) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a child process tells its parent: a result, or an error's exit code and message."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    exit_code: int = ExitCode.DONE
    message: str = ""

    def check(self) -> None:
        """Raise the error, if it is one: ChildError."""
        if self.exit_code != ExitCode.DONE:
            raise ChildError(self.exit_code, self.message)


def in_child(path: bytes, work: Callable[[], Result], kind: type[Result]) -> Result:
    """Do some work in a child process, which dies with this one.

    Args:
        path: The volume that it is about.
        work: What to do. Call it from a process without threads.
        kind: Of the result; something that msgspec encodes.

    Raises:
        CorruptionError: The child was killed, and the pages of the volume are damaged.
        BlockfsError: The work raised it; or the child was killed, and the volume is not to blame.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            with open(writer, "wb") as pipe:
                pipe.write(msgspec.json.encode(_report(work)))
        finally:
            os._exit(0)
    os.close(writer)
    try:
        with open(reader, "rb") as pipe:
            told = pipe.read()
    finally:
        _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        raise killed(path, -code)
    report = msgspec.json.decode(told, type=Report)
    report.check()
    return msgspec.json.decode(report.result, type=kind)


def _report(work: Callable[[], Result]) -> Report:
    try:
        return Report(result=msgspec.Raw(msgspec.json.encode(work())))
    except EXPECTED as error:
        return Report(exit_code=code_of(error), message=said(error))
    except KeyboardInterrupt:
        return Report(exit_code=ExitCode.INTERRUPTED, message="interrupted")
    except Exception as error:  # noqa: BLE001 - the top of this process: whatever it is, the parent must tell it
        return Report(exit_code=ExitCode.UNEXPECTED, message=f"internal error: {type(error).__name__}: {error}")


def killed(path: bytes, number: int) -> BlockfsError:
    """What to say of a process that worked on a volume and was killed by a signal.

    Raises:
        CorruptionError: Instead, if the volume's pages are damaged.
    """
    volume = Volume.load(path)
    refuse_damaged_tree(volume)
    refuse_damaged_index(volume)
    return BlockfsError(f"{os.fsdecode(path)}: the process was killed by {signal.Signals(number).name}")
