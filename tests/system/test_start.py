"""What a command costs before it does anything: in modules, and in calls of functions.

Both are the same on any machine, however busy it is; its time is not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.system.machines import Machines

HEAVY = ["asyncio", "lmdb", "multiprocessing", "pathspec", "pyfuse3", "rich", "ssl", "structlog", "trio", "urllib3"]

COSTS = {
    "--help": (170, 30_000, []),
    "status": (255, 48_000, ["lmdb"]),
    "reconcile": (576, 160_000, ["lmdb", "ssl", "trio", "urllib3"]),
    "stats --help": (200, 40_000, []),
}
"""Verb → how many modules it may import, how many calls it may make, and which of the heavy modules it may import.

Each module is 0.3 ms, the heavy ones 5 to 80; 10,000 calls are about 3 ms. Calls may be a fifth more than they were.
"""

_COUNT = """
import json, sys
calls = 0
def count(_frame, event, _argument):
    global calls
    calls += event == "call"
sys.setprofile(count)
from syncer.cli.main import run
code = run(sys.argv[1:])
sys.setprofile(None)
told = [code, len(sys.modules), calls, sorted({name.split(".")[0] for name in sys.modules})]
sys.stderr.write(json.dumps(told))
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


@pytest.mark.parametrize("verb", COSTS)
def test_a_command_imports_and_computes_no_more_than_it_needs(at_rest: Machines, verb: str) -> None:
    modules, calls, allowed = COSTS[verb]
    ended = subprocess.run(
        [sys.executable, "-c", _COUNT, *verb.split()],
        env=at_rest.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, imported, called, names = json.loads(ended.stderr)
    print(f"{imported} modules, {called:,} calls")
    assert code == 0
    assert [name for name in HEAVY if name in names] == allowed
    assert (imported <= modules, called <= calls) == (True, True), f"{imported} modules, {called:,} calls"
