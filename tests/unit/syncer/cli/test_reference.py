"""Every verb and option is in the reference, in the man page and in the shells' completions."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from syncer.cli.commands import MODULES, blocksync

PROJECT = Path(__file__).parents[4]
PAGES = ("cli.md", "reconcile.md", "tools.md", "server.md", "repo.md")


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


def rows(path: str, command: click.Command) -> list[str]:
    """Its lines of the table in cli.md: one, or as many as its options need."""
    names = options(command)
    pairs = {f"--no-{name[2:]}": f"--[no-]{name[2:]}" for name in names if f"--no-{name[2:]}" in names}
    told = [pairs.get(f"--no-{name[2:]}", name) for name in names if name not in pairs]
    verb = f"`{path.removeprefix('blocksync ')}`"
    return [
        f"| {verb if number == 0 else ''} | {f'`{line}`' if line else ''} |"
        for number, line in enumerate(textwrap.wrap(" ".join(told), 120, break_on_hyphens=False) or [""])
    ]


def test_the_table_of_the_reference_has_every_command_and_option() -> None:
    table = (PROJECT / "docs/reference/cli.md").read_text().partition("## All commands and options")[2]
    wanted = [line for path, (command, _) in ALL.items() if path != "blocksync" for line in rows(path, command)]
    assert [line for line in table.splitlines() if line.startswith(("| `", "|  |"))] == wanted


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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all man pages."""
    folder = tmp_path_factory.mktemp("man")
    for section in ("man1", "man8"):
        (folder / section).mkdir()
    subprocess.run([sys.executable, PROJECT / "scripts/manpages.py", "--all", folder], check=True)
    return folder


@pytest.mark.parametrize("verb", list(MODULES))
def test_every_verb_has_a_man_page_with_its_options_and_examples(pages: Path, verb: str) -> None:
    page = (pages / f"man1/blocksync-{verb}.1").read_text().replace("\\-", "-")
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "SEE ALSO"):
        assert f".SH {heading}\n" in page
    below = [command for path, (command, _) in ALL.items() if path.split()[1:2] == [verb]]
    for name in (name for command in below for name in options(command)):
        assert re.search(rf"{re.escape(name)}(?![\w-])", page), name
    assert f"blocksync {verb}" in page.partition(".SH EXAMPLES")[2].partition(".SH EXIT")[0]


def test_examples_of_the_man_pages_are_command_lines_that_are_accepted(pages: Path) -> None:
    found = re.findall(r"^\.nf\n(blocksync .*?)\n\.fi", "\n".join(
        page.read_text() for page in pages.glob("man1/blocksync-*.1")
    ), re.MULTILINE)  # fmt: skip
    assert len(found) > len(MODULES)
    for line in found:
        for one in line.replace("\\-", "-").split(";"):
            _, *words = shlex.split(one.partition(">")[0])
            command: click.Command = blocksync
            while isinstance(command, click.Group) and words and not words[0].startswith("-"):
                name, *words = words
                below = command.get_command(click.Context(command), name)
                assert below is not None, one
                command = below
            command.make_context(name, words)  # parses; a wrong option or a missing argument raises


@pytest.mark.parametrize("path", [path for path in ALL if path != "blocksync"])
def test_completion_offers_every_command_and_option(path: str) -> None:
    """The shells' scripts ask the command itself, so what it answers is what they offer."""
    *above, name = path.split()[1:]
    complete = ShellComplete(blocksync, {}, "blocksync", "_BLOCKSYNC_COMPLETE")
    assert name in {item.value for item in complete.get_completions(above, name)}
    offered = {item.value for item in complete.get_completions([*above, name], "--")}
    assert set(options(ALL[path][0])) <= offered
