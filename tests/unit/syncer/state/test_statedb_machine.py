"""StateDB against a dict, with crashes: whatever was recorded is there, whatever was not is not, indexes agree."""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from syncer.core.model import BaseRow, Nid
from syncer.core.planner.outcome import BaseChange, Forgotten
from syncer.state.statedb import StateDB
from tests import effort, strategies
from tests.unit.syncer.core.trees import local_tag, remote_tag
from tests.unit.syncer.state.indexes import at, with_inode, with_uuid

_few_nids = st.integers(1, 12).map(Nid)
_few = st.integers(1, 4)


class CrashError(RuntimeError):
    """Stops a transaction in the middle."""


class Machine(RuleBasedStateMachine):
    """One state, reopened at random."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="statedb-")
        self.state = StateDB.create(self.folder, map_size_bytes=1 << 24)
        self.rows: dict[Nid, BaseRow] = {}
        self.meta: dict[str, bytes] = {}
        self.numbers: set[Nid] = set()

    def teardown(self) -> None:
        self.state.close()
        shutil.rmtree(self.folder)

    @staticmethod
    def _row(nid: Nid, node: object, inode: int, uuid: int) -> BaseRow:
        return BaseRow(nid=nid, node=node, local=local_tag(inode), remote=remote_tag(uuid))  # type: ignore[arg-type] # a node

    @rule(
        puts=st.lists(st.tuples(_few_nids, strategies.nodes(), _few, _few), max_size=5),
        drops=st.lists(_few_nids, max_size=3),
        value=st.binary(max_size=10),
        crash=st.booleans(),
    )
    def record(self, puts: list[tuple[Nid, object, int, int]], drops: list[Nid], value: bytes, crash: bool) -> None:
        """A group of changes; a crash before its commit leaves nothing of it."""
        changes: list[BaseChange] = [self._row(*put) for put in puts]
        changes += [Forgotten(nid=nid) for nid in drops]

        def stream() -> object:
            yield from changes
            if crash:
                raise CrashError

        try:
            self.state.record(stream(), meta={"cursor": value})  # type: ignore[arg-type] # a generator
        except CrashError:
            return
        for change in changes:
            if isinstance(change, BaseRow):
                self.rows[change.nid] = change
            else:
                self.rows.pop(change.nid, None)
        self.meta["cursor"] = value

    @rule(count=st.integers(1, 3))
    def number(self, count: int) -> None:
        fresh = self.state.allocator()
        for _ in range(count):
            nid = fresh()
            assert nid not in self.numbers
            self.numbers.add(nid)

    @rule()
    def reopen(self) -> None:
        self.state.close()
        self.state = StateDB.open(self.folder, map_size_bytes=1 << 24)

    @rule()
    def relink(self) -> None:
        self.state.clear()
        self.rows.clear()

    @invariant()
    def all_is_as_recorded(self) -> None:
        assert dict(self.state.load_base().rows) == self.rows
        assert self.state.meta_get("cursor") == self.meta.get("cursor")

    @invariant()
    def the_indexes_agree(self) -> None:
        for number in range(1, 5):
            inode = sorted(nid for nid, row in self.rows.items() if row.local == local_tag(number))
            assert with_inode(self.state, replace(local_tag(number), size_bytes=9)) == inode
            uuid = sorted(nid for nid, row in self.rows.items() if row.remote == remote_tag(number))
            assert with_uuid(self.state, f"u{number}") == uuid
        for row in self.rows.values():
            there = sorted(nid for nid, other in self.rows.items() if other.node.slot == row.node.slot)
            assert at(self.state, row.node.parent, row.node.name) == there


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=effort.count("sync state"), stateful_step_count=25, deadline=None)
