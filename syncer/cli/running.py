"""Runs a command line, and turns every failure into one line and an exit code."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Sequence

import click

from blockfs.errors import BlockfsError
from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.output import note
from syncer.cli.verbs import blocksync
from syncer.errors import SyncerError


def run_verb(arguments: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit code; messages are on stderr.
    """
    debug = "--debug" in arguments
    try:
        result = blocksync.main(list(arguments), prog_name="blocksync", standalone_mode=False)
    except KeyboardInterrupt:
        return _reported(click.Abort())
    except Exception as error:  # noqa: BLE001 - the one place that answers for everything below
        if debug:
            traceback.print_exc()
        return _reported(error)
    return result if isinstance(result, int) else ExitCode.DONE


def _reported(error: Exception) -> int:
    """Print one line for a failure; returns its exit code."""
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    message, code = _meaning(error)
    note(f"blocksync: {message}")
    return code


def _meaning(error: Exception) -> tuple[str, int]:
    match error:
        case click.Abort():
            return "interrupted", ExitCode.INTERRUPTED
        case BlockfsError() | SyncerError():
            return str(error), error.exit_code
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return str(error), ExitCode.NO_SPACE
        case OSError():
            return str(error), ExitCode.UNEXPECTED
        case _:
            text = f"internal error: {type(error).__name__}: {error} (--debug shows where; please report it)"
            return text, ExitCode.UNEXPECTED
