"""A passphrase as a person types it, or a script gives it. Never as an argument: all users can read these."""

from __future__ import annotations

import os
import stat
import sys
from typing import Final

import click

from blockfs.runtime.output import note
from syncer.errors import NotFoundError, UsageError

_LIMIT: Final = 4096  # bytes; nobody types more


def read_passphrase(file: str | None) -> str:
    """Ask for it twice on a terminal, without showing it; else read one line.

    Args:
        file: Where to read it from; "-": standard input; None: the terminal if there is one, else standard input.

    Raises:
        UsageError: More than one line, no text, or none at all.
        NotFoundError: No such file.
        Abort: Ctrl-C, or the terminal hung up.
    """
    if file is None and sys.stdin.isatty():
        return str(click.prompt("Passphrase", hide_input=True, confirmation_prompt="The same again", err=True))
    raw = sys.stdin.buffer.read(_LIMIT + 1) if file in {None, "-"} else _of_file(str(file))
    try:
        lines = [line for line in raw.decode().splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise UsageError("the passphrase is no UTF-8 text") from None
    if len(raw) > _LIMIT or len(lines) > 1:
        raise UsageError("expected a passphrase of one line")
    if not lines:
        raise UsageError("the passphrase is empty: type it, or give it on standard input or by --file FILE")
    return lines[0]


def _of_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRGRP | stat.S_IROTH):
                note(f"warning: {path} holds a passphrase, and others can read it; chmod 600 {path}")
            return file.read(_LIMIT + 1)
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist") from None
