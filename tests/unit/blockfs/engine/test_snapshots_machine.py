"""Whatever happens to the files, a snapshot stays what it was."""

from __future__ import annotations

from hypothesis import settings

from tests import effort
from tests.unit.blockfs.engine.snapshots_machine import SnapshotMachine

TestSnapshots = SnapshotMachine.TestCase
TestSnapshots.settings = settings(max_examples=effort.count("snapshots"), stateful_step_count=25, deadline=None)
