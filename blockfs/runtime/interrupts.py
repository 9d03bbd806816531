"""Signals and standard streams as a command finds them.

Ctrl-C while it starts: it ends at once, without a traceback, with exit code 130. Until a verb is at work nothing has
begun that would have to be undone, and what is interrupted is most likely an import. So the process just ends. When
the verb begins, Ctrl-C becomes KeyboardInterrupt again, which the verb may clean up after, and which trio's own
handling needs; when the verb has ended, the process ends at once again, instead of in the interpreter's own last
steps, which would show a traceback, too.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from blockfs.exitcodes import ExitCode


def end_at_once() -> None:
    """From here on Ctrl-C ends the process. Where it is ignored (a job in the background) it stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def interrupt_verbs() -> None:
    """From here on Ctrl-C is KeyboardInterrupt; undoes `end_at_once` and nothing else."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(ExitCode.INTERRUPTED)


def hear_of_children() -> None:
    """Undo what some supervisors leave to what they start: SIGCHLD ignored, with which nobody learns how a child ended.

    A mount that was refused, say, and a collection, which work in processes of their own.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def complete_streams() -> None:
    """Open /dev/null for each standard stream that the process was started without; before any other file is opened.

    Else the next files get these numbers, the volume's lock, say; and who takes the number for the stream (a daemon
    that lets go of its terminal) writes into that file, or closes it: a mount without its lock is mounted twice.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # so Python says that there is none
            descriptor = os.open(os.devnull, os.O_RDWR)  # in this order the lowest free number is the stream's
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", errors="backslashreplace"))
