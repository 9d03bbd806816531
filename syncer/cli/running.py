"""Runs a command line, and turns every failure into one line and an exit code."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from blockfs.errors import ExpectedError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import code_of, said
from blockfs.runtime.output import json_line
from blockfs.runtime.terminal import complain
from syncer.cli.commands import blocksync
from syncer.cli.failures import ToldError


def run_verb(arguments: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit code; messages are on stderr.
    """
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        result = blocksync.main(list(arguments), prog_name="blocksync", standalone_mode=False)
    except KeyboardInterrupt:
        return _reported(click.Abort(), as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the one place that answers for everything below
        if debug:
            traceback.print_exc()
        return _reported(error, as_json=as_json)
    return result if isinstance(result, int) else ExitCode.DONE


def _reported(error: Exception, *, as_json: bool) -> int:
    """Print one line for a failure, on stdout too if it is read as JSON; returns its exit code."""
    if isinstance(error, ToldError):
        assert isinstance(error.__cause__, Exception)
        error, as_json = error.__cause__, False
    message, code = _meaning(error)
    with suppress(OSError):  # nobody takes it (a full disk): the exit code tells
        if isinstance(error, click.ClickException):
            error.show()
        else:
            complain(message)
    if as_json:
        with suppress(OSError):
            json_line("error", {"root": None, "exit_code": code, "message": message})
    return code


def _meaning(error: Exception) -> tuple[str, int]:
    match error:
        case click.Abort():
            return "interrupted", ExitCode.INTERRUPTED
        case click.ClickException():
            return error.format_message(), error.exit_code
        case ExpectedError() | OSError():
            return said(error), code_of(error)
        case _:
            text = f"internal error: {type(error).__name__}: {error} (--debug shows where; please report it)"
            return text, ExitCode.UNEXPECTED
