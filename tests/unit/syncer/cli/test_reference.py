"""Every verb and option is in the reference, in the man page and in the shells' completions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from syncer.cli.verbs import blocksync

PROJECT = Path(__file__).parents[4]
PAGES = ("cli.md", "reconcile.md", "tools.md", "server.md")


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """A command and those below it, by what one types."""
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, click.Context(below, info_name=name, parent=context))


ALL = {path: (command, context) for path, command, context in commands(
    blocksync, click.Context(blocksync, info_name="blocksync")
)}  # fmt: skip


def options(command: click.Command) -> list[str]:
    """The options one types, without those that are hidden."""
    found = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    return sorted(name for each in found for name in (*each.opts, *each.secondary_opts) if name.startswith("--"))


def row(path: str, command: click.Command) -> str:
    """Its line of the table in cli.md."""
    typed = ", ".join(f"`{name}`" for name in options(command))
    return f"| `{path}` | {typed} |"


def test_the_table_of_the_reference_has_every_command_and_option() -> None:
    table = (PROJECT / "docs/reference/cli.md").read_text().partition("## All commands and options")[2]
    wanted = [row(path, command) for path, (command, _) in ALL.items() if path != "blocksync"]
    assert [line for line in table.splitlines() if line.startswith("| `")] == wanted


def test_every_option_is_described_and_not_only_listed() -> None:
    """The table alone says nothing."""
    text = "".join((PROJECT / "docs/reference" / page).read_text().partition("## All commands")[0] for page in PAGES)
    missing = [
        (path, name)
        for path, (command, _) in ALL.items()
        for name in options(command)
        if not re.search(rf"{re.escape(name)}(?![\w-])", text)
    ]
    assert not missing


@pytest.fixture(scope="module")
def man_page() -> str:
    made = subprocess.run(
        [sys.executable, PROJECT / "scripts/manpages.py", "blocksync"], capture_output=True, text=True, check=True
    )
    return made.stdout.replace("\\-", "-")


@pytest.mark.parametrize("path", [path for path in ALL if path != "blocksync"])
def test_the_man_page_has_every_command_and_option(man_page: str, path: str) -> None:
    section = man_page.partition(f".SS {path}\n")[2].partition("\n.SS ")[0]
    assert section
    for name in options(ALL[path][0]):
        assert re.search(rf"{re.escape(name)}(?![\w-])", section), json.dumps([path, name])


@pytest.mark.parametrize("path", [path for path in ALL if path != "blocksync"])
def test_completion_offers_every_command_and_option(path: str) -> None:
    """The shells' scripts ask the command itself, so what it answers is what they offer."""
    *above, name = path.split()[1:]
    complete = ShellComplete(blocksync, {}, "blocksync", "_BLOCKSYNC_COMPLETE")
    assert name in {item.value for item in complete.get_completions(above, name)}
    offered = {item.value for item in complete.get_completions([*above, name], "--")}
    assert set(options(ALL[path][0])) <= offered
