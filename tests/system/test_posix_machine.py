"""The random comparison with ext4, at the small count of the test suite; tests/soak/posix.py has the full one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import effort
from tests.conftest import Mounted
from tests.system.exerciser import Exerciser
from tests.system.posix_machine import PosixMachine


def test_random_calls_do_what_they_do_on_ext4(shared_mount: Mounted, ext4: Path) -> None:
    PosixMachine.mounted, PosixMachine.ext4 = shared_mount, ext4
    run_state_machine_as_test(
        PosixMachine,
        settings=settings(
            max_examples=effort.count("calls beside ext4"),
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_reads_find_what_was_written(mounted: Mounted, frontend: str | None) -> None:
    exerciser = Exerciser(mounted.path / "file", seed=1, holes=frontend != "pyfuse3")
    operations = effort.count("exerciser") // 2
    for _ in range(2):
        exerciser.run(operations * 4 // 5)
        mounted.run("flush", mounted.path)
        exerciser.run(operations // 5)
        exerciser.close()
        mounted.umount()
        mounted.remount()
        exerciser.check()
        exerciser.open()
    exerciser.close()
