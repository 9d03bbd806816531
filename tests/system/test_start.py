"""What a command costs before it does anything: as a multiple of the bare interpreter, and in modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machines import BLOCKSYNC, Machines

BARE = [sys.executable, "-c", "pass"]
RUNS = 9
MORE_RUNS = 30  # if that was not enough for a quiet moment

LIMITS = {"--help": 6, "status": 8, "reconcile": 12}
"""Verb → times the bare interpreter's processor time, with byte code at hand, on a quiet machine."""

BESIDE_OTHERS = 1.25
"""The suite's other worker shares the caches, which costs a long start more than a short one: 10.5 times was 12.8."""

HEAVY = ["asyncio", "lmdb", "multiprocessing", "pathspec", "pyfuse3", "rich", "ssl", "structlog", "trio", "urllib3"]

MODULES = {
    "--help": (170, []),
    "status": (250, ["lmdb"]),
    "reconcile": (550, ["lmdb", "ssl", "trio", "urllib3"]),
    "stats --help": (200, []),
}
"""Verb → how many modules it may import, and which of the heavy ones. Each module is 0.3 ms, the heavy ones 5 to 80."""

_COUNT = """
import json, sys
from syncer.cli.main import run
code = run(sys.argv[1:])
sys.stderr.write(json.dumps([code, len(sys.modules), sorted({name.split(".")[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A linked folder with nothing to do."""
    machines = Machines(tmp_path_factory.mktemp("start"))
    try:
        machines.serve()
        root = machines.folder("root")
        for name in "abc":
            (root / name).write_text(name)
        machines.link(root)
        machines.reconcile(root)
        yield machines
    finally:
        machines.close()


def processor_s(command: list[str | Path], environment: dict[str, str]) -> float:
    """Processor time of one process, which must succeed."""
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return used.ru_utime + used.ru_stime


def test_a_command_starts_in_a_few_times_what_the_interpreter_takes(at_rest: Machines) -> None:
    """The least of several runs of each, by turns: what else the machine does can only add."""
    commands: dict[str, list[str | Path]] = {"bare": [*BARE], **{verb: [BLOCKSYNC, verb] for verb in LIMITS}}
    least = dict.fromkeys(commands, float("inf"))
    ratios: dict[str, float] = {}
    too_slow = set(LIMITS)
    for turn in range(RUNS + MORE_RUNS):
        for name, command in commands.items():
            least[name] = min(least[name], processor_s(command, at_rest.environment))
        ratios = {verb: round(least[verb] / least["bare"], 1) for verb in LIMITS}
        too_slow = {verb for verb, limit in LIMITS.items() if ratios[verb] > BESIDE_OTHERS * limit}
        if turn >= RUNS and not too_slow:
            break
    assert not too_slow, (ratios, least)


@pytest.mark.parametrize("verb", MODULES)
def test_a_command_imports_what_it_needs(at_rest: Machines, verb: str) -> None:
    most, allowed = MODULES[verb]
    ended = subprocess.run(
        [sys.executable, "-c", _COUNT, *verb.split()],
        env=at_rest.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, count, names = json.loads(ended.stderr)
    assert code == 0
    assert [name for name in HEAVY if name in names] == allowed
    assert count <= most
