"""How a guide's commands are found and given to a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.guest import SYSTEM_PATH
from tests.real.recipes import blocks, commands, environment_of, in_one_shell


def test_commands_are_what_follows_a_dollar_in_a_fenced_block() -> None:
    guide = "$ not this\n```\n$ one\noutput\n$ two \\\n> more\n```\n$ nor this\n"
    assert commands(guide) == ["one", "two \\\nmore"]
    assert blocks("```\na\nb\n```\ntext\n```sh\nc\n```\n") == ["a\nb\n", "c\n"]


def test_all_of_a_guide_is_one_shell_and_its_failure_is_named(tmp_path: Path) -> None:
    environment = environment_of(tmp_path, SYSTEM_PATH)
    took = in_one_shell(
        ["cd /; export KEPT=kept", "pwd; echo $KEPT", "sleep 9 & true"], tmp_path, environment, tmp_path
    )
    assert [each.output.split() for each in took] == [[], ["/", "kept"], []]
    with pytest.raises(AssertionError, match=r"false \| true: exit code 1"):
        in_one_shell(["echo before", "false | true", "echo after"], tmp_path, environment, tmp_path)
