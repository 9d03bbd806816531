"""The `blocksync` command: finds the verb, and turns every failure into one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click

from blockfs.cli import COMMANDS as VOLUME_VERBS
from blockfs.errors import BlockfsError
from blockfs.runtime import garbage
from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.output import note
from syncer.errors import SyncerError

SYNC_VERBS: Final = (
    "serve",
    "link",
    "unlink",
    "reconcile",
    "watch",
    "pause",
    "resume",
    "status",
    "trash",
    "conflicts",
    "resolve",
    "plan",
    "explain",
    "verify",
    "doctor",
    "ignore",
)

MODULES: Final = {
    **{verb: f"blockfs.cli.{verb}" for verb in VOLUME_VERBS},
    **{verb: f"syncer.cli.{verb}" for verb in SYNC_VERBS},
}
"""Verb → module. Loaded when used: a script that calls `blocksync stats` a thousand times imports no server."""


class Verbs(click.Group):
    """A group whose commands are loaded by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All verbs, in the order of the documentation."""
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import one verb."""
        module = MODULES.get(cmd_name)
        if module is None:
            return None
        with garbage.not_now():
            command = importlib.import_module(module).command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="blocksync", message="blocksync %(version)s")
@click.option("--debug", is_flag=True, help="Show a traceback on failure.")
@click.pass_context
def blocksync(context: click.Context, debug: bool) -> None:
    """Folders of large, similar files: small on disk, cheap to move."""
    context.obj = {"debug": debug}


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
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
