"""The process that serves figures, as the daemon keeps it there; played by small programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest
import trio

from syncer.watch.control import Ready
from syncer.watch.page.process import serve_figures

READY = msgspec.json.encode(Ready(address="http://localhost:1/")).decode()
IN_USE = msgspec.json.encode(Ready(refused="in use", exit_code=11)).decode()
PROGRAM = """
import sys
with open({log!r}, "a") as log:
    log.write(sys.argv[1] + "\\n")
with open({log!r}) as log:
    count = len(log.readlines())
if count <= {refusals}:
    print('{in_use}')
else:
    print('{ready}', flush=True)
    if count <= {refusals} + {deaths}:
        print(input() + 'http://localhost:1/', flush=True)  # then it dies
    else:
        open({fifo!r}, "w").close()
        for line in sys.stdin:
            print('http://localhost:1/', flush=True)
"""


@pytest.mark.parametrize(("refusals", "deaths"), [(0, 0), (2, 0), (0, 2)])
def test_it_is_begun_until_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, deaths: int
) -> None:
    """Breaks when a port that was in use at the start, or a process that was killed, costs the figures for good."""
    monkeypatch.setattr("syncer.watch.page.process._AGAIN_S", 0)
    log, fifo = tmp_path / "log", tmp_path / "stays"
    values = {"log": str(log), "fifo": str(fifo), "in_use": IN_USE, "ready": READY}
    (tmp_path / "program.py").write_text(PROGRAM.format(refusals=refusals, deaths=deaths, **values))
    os.mkfifo(fifo)

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            command = (sys.executable, str(tmp_path / "program.py"))
            nursery.start_soon(serve_figures, command, "127.0.0.1:8802")
            await trio.to_thread.run_sync(fifo.read_bytes)
            nursery.cancel_scope.cancel()

    trio.run(scenario)
    assert log.read_text().splitlines() == ["127.0.0.1:8802"] * (1 + refusals + deaths)
