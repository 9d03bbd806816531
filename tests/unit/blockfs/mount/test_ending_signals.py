"""Signals that end a mount: one counts, at whatever moment, and thousands do no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from blockfs.mount.ending_signals import ENDING_SIGNALS, EndingSignals

_STORM = "for killer in 1 2 3; do for number in {1..20000}; do kill -TERM $0; done & done; wait"

# Turns its loop, without a rest, until its stdin ends.
_TURNING = """
import sys, trio
from blockfs.mount.ending_signals import EndingSignals
async def main():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(signals.first)
        nursery.start_soon(turn, nursery.cancel_scope)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()
    print(await signals.first())
async def turn(until):
    while not until.cancel_called:
        await trio.lowlevel.checkpoint()
with EndingSignals() as signals:
    trio.run(main)
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of whoever runs the tests come back."""
    before = {each: signal.getsignal(each) for each in ENDING_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING_SIGNALS)
@pytest.mark.parametrize("comes_first", [True, False])
def test_a_signal_counts_whether_or_not_somebody_listens_already(number: signal.Signals, comes_first: bool) -> None:
    told = []

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                await trio.testing.wait_all_tasks_blocked()
                if not comes_first:
                    os.kill(os.getpid(), number)

    async def listen() -> None:
        told.append(await signals.first())

    with EndingSignals() as signals:
        if comes_first:
            os.kill(os.getpid(), number)
        trio.run(main)
        assert [signal.getsignal(each) for each in ENDING_SIGNALS] == [signal.SIG_IGN] * len(ENDING_SIGNALS)
    os.kill(os.getpid(), number)  # also while the process ends
    assert told == [number]


def test_what_is_ignored_is_not_heard() -> None:
    with EndingSignals() as signals:
        signals.ignore()
        for number in ENDING_SIGNALS:
            os.kill(os.getpid(), number)

        async def listen() -> bool:
            with trio.move_on_after(0) as waiting:
                await signals.first()
            return waiting.cancelled_caught

        assert trio.run(listen)


def test_handlers_are_as_before_where_nothing_came() -> None:
    handlers = [signal.getsignal(each) for each in ENDING_SIGNALS]
    with EndingSignals():
        assert [signal.getsignal(each) for each in ENDING_SIGNALS] != handlers
    assert [signal.getsignal(each) for each in ENDING_SIGNALS] == handlers


def test_thousands_of_signals_do_not_stop_the_loop() -> None:
    """A handler that runs for each nests until RecursionError, within milliseconds."""
    piped = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", _TURNING], stdin=piped, stdout=piped, stderr=piped, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        subprocess.run(["bash", "-c", _STORM, str(process.pid)], check=True)
        told, complaints = process.communicate()
    # CPython says so of one that came while its handler was taken away.
    complaints = complaints.replace("OSError: Signal 15 ignored due to race condition", "")
    assert (process.returncode, told, "Error" in complaints) == (0, "15\n", False), complaints
