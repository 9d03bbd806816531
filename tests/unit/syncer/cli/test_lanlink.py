"""What a command loads to ask its neighbours: beside the server's first window, and no more of it than is of use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from syncer.cli.lan import lanlink

LATER = """
import sys
from importlib import import_module
from syncer.cli.lan.lanlink import PARTS
for part in PARTS:
    import_module(part)
before = set(sys.modules)
import syncer.peer.exchange.exchange, syncer.peer.links.links, syncer.peer.links.opening
print(sorted(set(sys.modules) - before))
"""


def test_who_has_all_meanwhile_loads_no_further_part(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    async def main() -> None:
        with trio.CancelScope() as cycle:

            def load(part: str) -> None:
                loaded.append(part)
                if len(loaded) == 2:
                    trio.from_thread.run_sync(cycle.cancel)

            monkeypatch.setattr(lanlink, "import_module", load)
            await lanlink._load()

    trio.run(main)
    assert loaded == list(lanlink.PARTS[:2])


def test_after_the_last_part_it_is_looked_once_more_whether_anything_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> bool:
        with trio.CancelScope() as cycle:

            def load(part: str) -> None:
                if part == lanlink.PARTS[-1]:
                    trio.from_thread.run_sync(cycle.cancel)

            monkeypatch.setattr(lanlink, "import_module", load)
            await lanlink._load()
            return True
        return False

    assert not trio.run(main)


def test_the_parts_are_all_there_is_to_load() -> None:
    """What is loaded behind them is loaded by who waits for the server's answer, too."""
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_where_no_daemon_has_a_socket_what_asks_it_is_not_loaded(tmp_path: Path) -> None:
    program = (
        f"import trio, sys; from syncer.cli.lan import lanlink; trio.run(lanlink._connected, {f'{tmp_path}/s'!r}); "
    )
    told = "print('syncer.watch.control' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program + told], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
