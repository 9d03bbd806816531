"""Every command that a page shows in a block is one that there is: its verbs, its options, and as many arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from blockfs.errors import UsageError
from syncer.cli.commands import blocksync

PROJECT = Path(__file__).resolve().parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|[;&|(]\s*|\$ |sudo (?:-\S+ )*|do |then |! )blocksync(?= )([^;&|#)\n]*)")
SYNOPSIS = re.compile(r"[\[\]…{}]|\bOPTIONS\b|<[A-Z]")  # tells what may stand there, and is not typed


def commands(page: Path) -> Iterator[str]:
    """What follows `blocksync` in blocks of a page, up to a pipe, a comment or the end of the command."""
    for block in BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            for words in COMMAND.findall(line):
                if not SYNOPSIS.search(words):
                    yield words.partition(" >")[0].partition(" 2>")[0].strip()


def parse(words: list[str]) -> None:
    """Parse a command as click does, and run nothing.

    Raises:
        click.UsageError: There is no such command, or option, or it takes more arguments, or fewer.
        UsageError: The same, of a group of ours.
    """
    below: click.Command | None = blocksync
    while isinstance(below, click.Group):
        context = below.make_context("blocksync", words)
        words = [*context._protected_args, *context.args]
        if not words and below.invoke_without_command:
            return
        _, below, words = below.resolve_command(context, words)
    assert below is not None
    try:
        below.make_context("blocksync", words)
    except click.exceptions.Exit:
        return  # --help
    except click.BadParameter as error:  # that a file is not there is no reason
        if isinstance(error, click.MissingParameter):
            raise


FOUND = {page: list(dict.fromkeys(commands(page))) for page in PAGES}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if FOUND[page]], ids=lambda page: str(page.relative_to(PROJECT))
)
def test_every_command_of_a_block_is_one_that_there_is(page: Path) -> None:
    for command in FOUND[page]:
        try:
            parse(shlex.split(command))
        except (click.UsageError, UsageError) as error:
            pytest.fail(f"{page}: blocksync {command}: {error}")


def test_most_pages_for_users_are_looked_at() -> None:
    assert sum(map(len, FOUND.values())) > 150
    assert len([page for page in PAGES if FOUND[page]]) >= 15


@pytest.mark.parametrize("wrong", ["mont x y", "mount x y --no-such", "clone", "repo gcc u", "unlink a b c"])
def test_a_wrong_command_is_found(wrong: str) -> None:
    with pytest.raises((click.UsageError, UsageError)):
        parse(wrong.split())
