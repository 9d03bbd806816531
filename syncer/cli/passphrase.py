"""A passphrase as a person types it, or a script gives it. Never as an argument: all users can read these."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from typing import Final

import click

from blockfs.runtime.output import note
from syncer.errors import NotFoundError, UsageError

PASSWORD_VARIABLE: Final = "BLOCKSYNC_PASSWORD"  # noqa: S105 - the name of a variable
PASSWORD_FILE_VARIABLE: Final = "BLOCKSYNC_PASSWORD_FILE"  # noqa: S105 - likewise
PASSWORD_FILE_HELP: Final = "The repository's passphrase, one line; -: standard input."  # noqa: S105 - a help text

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
        return _typed("Passphrase", twice=True)
    return _line(file or "-", "type it, or give it on standard input or by --file FILE")


def is_given(file: str | None, environment: Mapping[str, str]) -> bool:
    """Whether a repository's passphrase stands somewhere, so that nobody need be asked for it; see there."""
    return any((file, environment.get(PASSWORD_FILE_VARIABLE), environment.get(PASSWORD_VARIABLE, "").strip()))


def repository_secret(file: str | None, environment: Mapping[str, str], *, new: bool = False) -> str:
    """A repository's passphrase, or a recovery key of it: all commands take it from the same places.

    In this order: `file`, the file that $BLOCKSYNC_PASSWORD_FILE names, $BLOCKSYNC_PASSWORD, the terminal.

    Args:
        file: As --password-file says; "-": standard input; None: not given.
        environment: The process's.
        new: It is to become one: on a terminal it is asked for twice.

    Raises:
        UsageError: More than one line, no text, none at all, or nobody to ask.
        NotFoundError: No such file.
        Abort: Ctrl-C, or the terminal hung up.
    """
    file = file or environment.get(PASSWORD_FILE_VARIABLE) or None
    if file is not None:
        return _line(file, "one line is expected there")
    if environment.get(PASSWORD_VARIABLE, "").strip():
        return _text(environment[PASSWORD_VARIABLE])
    if sys.stdin.isatty():
        return _typed("New passphrase of the repository" if new else "Passphrase of the repository", twice=new)
    raise UsageError(
        f"no passphrase of the repository, and no terminal to ask on: give --password-file FILE, or set "
        f"{PASSWORD_FILE_VARIABLE} or {PASSWORD_VARIABLE}"
    )


def _text(variable: str) -> str:
    """What a variable holds, if it is text: bytes that are none come as lone surrogates."""
    try:
        variable.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{PASSWORD_VARIABLE}: the passphrase is no UTF-8 text") from None
    return variable


def _typed(what: str, *, twice: bool) -> str:
    return str(click.prompt(what, hide_input=True, confirmation_prompt="The same again" if twice else False, err=True))


def _line(file: str, remedy: str) -> str:
    """The one line of a file, or of standard input."""
    where = "" if file == "-" else f"{file}: "
    raw = sys.stdin.buffer.read(_LIMIT + 1) if file == "-" else _of_file(file)
    try:
        lines = [line for line in raw.decode().splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise UsageError(f"{where}the passphrase is no UTF-8 text") from None
    if len(raw) > _LIMIT or len(lines) > 1:
        raise UsageError(f"{where}expected a passphrase of one line")
    if not lines:
        raise UsageError(f"{where}the passphrase is empty: {remedy}")
    return lines[0]


def _of_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRGRP | stat.S_IROTH):
                note(f"warning: {path} holds a passphrase, and others can read it; chmod 600 {path}")
            return file.read(_LIMIT + 1)
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist") from None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
