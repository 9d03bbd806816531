"""The verbs as help shows them, and what a mistyped one is answered."""

from __future__ import annotations

import importlib
import subprocess
import sys

import click
import pytest

from syncer.cli.commands import MODULES, SECTIONS, SUMMARIES
from syncer.cli.main import run

WIDTH = 80


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run(["--help"]) == 0
    return capsys.readouterr().out.splitlines()


def test_help_groups_the_verbs_under_headings(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys)
    for heading, verbs in SECTIONS.items():
        below = lines[lines.index(f"{heading}:") + 1 :][: len(verbs)]
        assert [line.split()[0] for line in below] == list(verbs)


def test_summaries_in_help_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys)
    assert not [line for line in lines if line.endswith("...") and "Usage" not in line]
    for verb, summary in SUMMARIES.items():
        (line,) = (line for line in lines if line.split()[:1] == [verb])
        assert line.split(maxsplit=1)[1] == summary
        assert len(line) <= WIDTH


@pytest.mark.parametrize("verb", MODULES)
def test_each_verb_is_the_command_of_its_module(verb: str) -> None:
    command = importlib.import_module(MODULES[verb]).command
    assert isinstance(command, click.Command)
    assert command.name == verb


def test_help_imports_no_verb() -> None:
    """It would take a second, for lines that are known."""
    program = (
        "import sys; from syncer.cli.main import run; from syncer.cli.commands import MODULES; run(['--help']); "
        "sys.exit(str({*MODULES.values()} & {*sys.modules} or ''))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == ""


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["recconcile"], "Did you mean reconcile?"),
        (["stauts"], "Did you mean stats or status?"),
        (["trash", "restor"], "Did you mean restore?"),
    ],
)
def test_an_unknown_verb_is_answered_with_the_likeliest_ones(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert f"Error: there is no verb {arguments[-1]!r}. {meant}" in told


def test_a_verb_like_no_other_is_just_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["xyzzy"]) == 2
    assert capsys.readouterr().err.endswith("Error: there is no verb 'xyzzy'.\n")
