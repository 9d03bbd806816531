"""Entry point of the `blocksync` command. It imports next to nothing, so that Ctrl-C finds no import unprepared."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from blockfs.exitcodes import ExitCode
from blockfs.runtime import interrupts
from syncer.cli import interpreter


def main() -> None:
    """Entry point of the console script."""
    interrupts.complete_streams()
    interrupts.hear_of_children()
    interrupts.end_at_once()
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # a second one, while the first was being told
        code = ExitCode.INTERRUPTED
    interrupts.end_at_once()
    interpreter.not_at_the_end()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit code; messages are on stderr.
    """
    with interpreter.not_now():
        from syncer.cli.running import run_verb  # noqa: PLC0415 - after `main` has seen to Ctrl-C
    return run_verb(arguments)


if __name__ == "__main__":
    main()
