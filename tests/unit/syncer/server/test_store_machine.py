"""The store against a model in dictionaries: every operation, the passing of time, collections and restarts."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.orders import DeleteOrder, MetaOrder, Place, Selection, Transfer, TransferOrder
from syncer.server.errors import BadRequest, Conflict, MissingBlocks, NotFound, PreconditionFailed, Refusal
from syncer.server.store.store import GRACE_US
from tests import effort
from tests.unit.syncer.server.stores import (
    BLOCK,
    HOUR_US,
    MEMORY,
    Clock,
    open_store,
    put,
    put_ids,
    read,
    stored,
    upload,
)

ACCOUNTS = ("alice", "bob")
CONTAINERS = ("c", "d")
NAMES = ("f", "g", "dir/f", "x" * 600, "x" * 600 + "/y")
LETTERS = "abc\0"

letters = st.text(LETTERS, max_size=4)
places = st.builds(
    Place, account=st.sampled_from(ACCOUNTS), container=st.sampled_from(CONTAINERS), name=st.sampled_from(NAMES)
)
shifts = st.sampled_from([None, None, None, 0, -1])
"""The condition on the version: none, the current one, or one before it."""


@dataclass
class ModelVersion:
    serial: int
    data: bytes
    uuid: str
    meta: dict[str, str]

    @property
    def ids(self) -> set[BlockId]:
        return {block_id(self.data[at : at + BLOCK]) for at in range(0, len(self.data), BLOCK)} - {ZERO_BLOCK}


@dataclass
class ModelName:
    versions: list[ModelVersion] = field(default_factory=list)
    live: bool = False

    @property
    def current(self) -> ModelVersion | None:
        return self.versions[-1] if self.live else None


Model = dict[tuple[str, str], dict[str, ModelName]]


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.clock = Clock()
        self.store = open_store(self.folder / "s", self.clock)
        self.model: Model = {}
        self.possessed: dict[tuple[str, BlockId], int] = {}
        self.serial = 0
        for account in ACCOUNTS:
            self.create(account, "c")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    # --- what the model says

    def name(self, place: Place) -> ModelName:
        container = self.model.get((place.account, place.container))
        if container is None:
            raise NotFound("container")
        return container.get(place.name, ModelName())

    def judge(self, place: Place, shift: int | None) -> Conditions:
        """Conditions for a write, and what the model says about them."""
        current = self.name(place).current
        version = 0 if current is None else current.serial
        return Conditions(if_version=None if shift is None else max(0, version + shift))

    def require(self, place: Place, conditions: Conditions) -> None:
        current = self.name(place).current
        version = 0 if current is None else current.serial
        if conditions.if_version not in {None, version}:
            raise PreconditionFailed("model")

    def existing(self, place: Place) -> ModelVersion:
        current = self.name(place).current
        if current is None:
            raise NotFound("object")
        return current

    def append(self, place: Place, serial: int, data: bytes, uuid: str, meta: dict[str, str]) -> None:
        name = self.model[place.account, place.container].setdefault(place.name, ModelName())
        assert serial > self.serial
        self.serial = serial
        name.versions.append(ModelVersion(serial=serial, data=data, uuid=uuid, meta=meta))
        name.live = True

    def same_refusal(self, expected: Refusal | None, found: Refusal | None) -> bool:
        """Whether both refuse alike; True: nothing was done."""
        assert type(expected) is type(found), (expected, found)
        return expected is not None

    # --- rules

    @rule(account=st.sampled_from(ACCOUNTS), container=st.sampled_from(CONTAINERS))
    def create(self, account: str, container: str) -> None:
        made = self.store.create_container(account, container)
        assert made == ((account, container) not in self.model)
        self.model.setdefault((account, container), {})

    @rule(account=st.sampled_from(ACCOUNTS), container=st.sampled_from(CONTAINERS))
    def drop(self, account: str, container: str) -> None:
        expected: Refusal | None = None
        found: Refusal | None = None
        names = self.model.get((account, container))
        if names is None:
            expected = NotFound("")
        elif any(name.live for name in names.values()):
            expected = Conflict("")
        try:
            self.store.delete_container(account, container)
        except Refusal as refusal:
            found = refusal
        if not self.same_refusal(expected, found):
            del self.model[account, container]

    @rule(place=places, text=letters, tail=st.integers(0, BLOCK - 1), shift=shifts)
    def put(self, place: Place, text: str, tail: int, shift: int | None) -> None:
        data = b"".join(letter.encode() * BLOCK for letter in text)
        data = data[: len(data) - tail] if data else data
        state = expected = found = None
        try:
            conditions = self.judge(place, shift)
            self.require(place, conditions)
        except Refusal as refusal:
            expected = refusal
            conditions = Conditions(if_version=99_999_999)
        try:
            state = put(self.store, place, data, conditions, k=text or "-")
        except Refusal as refusal:
            found = refusal
        if self.same_refusal(expected, found):
            return
        assert state is not None
        before = self.name(place).current
        assert before is None or before.uuid == state.uuid
        self.append(place, state.version, data, state.uuid, {"k": text or "-"})
        for known in self.name(place).versions[-1].ids:
            self.possessed[place.account, known] = self.clock.now_us

    @rule(account=st.sampled_from(ACCOUNTS), text=st.text(LETTERS, min_size=1, max_size=3))
    def upload(self, account: str, text: str) -> None:
        ids = upload(self.store, account, *(letter.encode() * BLOCK for letter in text))
        assert ids == [block_id(letter.encode() * BLOCK) for letter in text]
        for known in set(ids) - {ZERO_BLOCK}:
            self.possessed[account, known] = self.clock.now_us

    @rule(place=places, text=letters, repeat=st.sampled_from([1, 1, 150]), shift=shifts)
    def put_hashmap(self, place: Place, text: str, repeat: int, shift: int | None) -> None:
        ids = [block_id(letter.encode() * BLOCK) for letter in text] * repeat
        data = b"".join(letter.encode() * BLOCK for letter in text) * repeat
        state = expected = found = None
        conditions = Conditions(if_version=99_999_999)
        try:
            conditions = self.judge(place, shift)
            self.require(place, conditions)
            missing = [
                one for one in dict.fromkeys(ids) if one != ZERO_BLOCK and (place.account, one) not in self.possessed
            ]
            if missing:
                expected = MissingBlocks(missing)
        except Refusal as refusal:
            expected = refusal
        try:
            state = put_ids(self.store, place, ids, conditions=conditions)
        except Refusal as refusal:
            found = refusal
        if self.same_refusal(expected, found):
            assert not isinstance(expected, MissingBlocks) or expected.ids == found.ids  # type: ignore[union-attr]  # same type
            return
        assert state is not None
        self.append(place, state.version, data, state.uuid, {})

    @rule(place=places, value=st.sampled_from(["", "1", "2"]), update=st.booleans(), shift=shifts)
    def set_meta(self, place: Place, value: str, update: bool, shift: int | None) -> None:
        state = expected = found = current = None
        conditions = Conditions()
        try:
            conditions = self.judge(place, shift)
            self.require(place, conditions)
            current = self.existing(place)
        except Refusal as refusal:
            expected = refusal
        try:
            state = self.store.set_meta(
                MetaOrder(place=place, meta={"m": value}, keeps_meta=update, conditions=conditions)
            )
        except Refusal as refusal:
            found = refusal
        if self.same_refusal(expected, found):
            return
        assert state is not None
        assert current is not None
        meta = {key: text for key, text in {**(current.meta if update else {}), "m": value}.items() if text}
        self.append(place, state.version, current.data, current.uuid, meta)
        assert state.meta == meta

    @rule(place=places, shift=shifts)
    def delete(self, place: Place, shift: int | None) -> None:
        expected = found = None
        conditions = Conditions()
        try:
            conditions = self.judge(place, shift)
            self.require(place, conditions)
            self.existing(place)
        except Refusal as refusal:
            expected = refusal
        serial = 0
        try:
            serial = self.store.delete(DeleteOrder(place=place, conditions=conditions))
        except Refusal as refusal:
            found = refusal
        if not self.same_refusal(expected, found):
            self.name(place).live = False
            assert serial > self.serial
            self.serial = serial

    @rule(
        source=places,
        container=st.sampled_from(CONTAINERS),
        name=st.sampled_from(NAMES),
        from_shift=shifts,
        to_shift=shifts,
    )
    def move(self, source: Place, container: str, name: str, from_shift: int | None, to_shift: int | None) -> None:
        destination = Place(account=source.account, container=container, name=name)
        state = expected = found = moved = None
        order = TransferOrder()
        try:
            if source == destination:
                raise BadRequest("same")
            order = TransferOrder(source=self.judge(source, from_shift))
            self.require(source, order.source)
            moved = self.existing(source)
            order = TransferOrder(
                source=order.source, destination=self.judge(destination, to_shift), meta={"moved": "1"}
            )
            self.require(destination, order.destination)
        except Refusal as refusal:
            expected = refusal
        try:
            state = self.store.transfer(Transfer(source=source, destination=destination, order=order, moves=True))
        except Refusal as refusal:
            found = refusal
        if self.same_refusal(expected, found):
            return
        assert state is not None
        assert moved is not None
        self.name(source).live = False
        assert state.uuid == moved.uuid
        self.append(destination, state.version, moved.data, moved.uuid, {**moved.meta, "moved": "1"})

    @rule(source=places, container=st.sampled_from(CONTAINERS), name=st.sampled_from(NAMES), back=st.integers(0, 2))
    def copy(self, source: Place, container: str, name: str, back: int) -> None:
        destination = Place(account=source.account, container=container, name=name)
        state = expected = found = copied = version = None
        try:
            self.require(source, Conditions())
            copied = self.existing(source)
            history = self.name(source).versions
            copied = history[max(0, len(history) - 1 - back)]
            version = copied.serial if back else None
            self.require(destination, Conditions())
        except Refusal as refusal:
            expected = refusal
        try:
            state = self.store.transfer(
                Transfer(
                    source=source,
                    version=version,
                    destination=destination,
                    order=TransferOrder(meta={"copied": "1"}),
                    moves=False,
                )
            )
        except Refusal as refusal:
            found = refusal
        if self.same_refusal(expected, found):
            return
        assert state is not None
        assert copied is not None
        before = self.name(destination)
        assert (state.uuid == before.versions[-1].uuid) if before.live else True
        self.append(destination, state.version, copied.data, state.uuid, {**copied.meta, "copied": "1"})

    @rule(hours=st.sampled_from([1, 13, 25]))
    def wait(self, hours: int) -> None:
        self.clock.now_us += hours * HOUR_US

    @rule()
    def collect(self) -> None:
        self.store.collect_garbage()
        named = {
            one
            for names in self.model.values()
            for name in names.values()
            for version in name.versions
            for one in version.ids
        }
        oldest_us = self.clock.now_us - GRACE_US
        self.possessed = {
            key: time_us for key, time_us in self.possessed.items() if time_us >= oldest_us or key[1] in named
        }
        # Exact, because the marks have 2^20 bits for a handful of ids.
        assert stored(self.store) == {one for _, one in self.possessed}

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = open_store(self.folder / "s", self.clock)

    # --- what can be seen

    @rule(place=places)
    def look_closely(self, place: Place) -> None:
        """Every version of one name."""
        try:
            versions = self.name(place).versions
        except NotFound:
            return
        if versions:
            assert [row.version for row in self.store.history(place)] == [version.serial for version in versions]
        for version in versions[-3:]:
            assert read(self.store, place, version.serial) == version.data

    @invariant()
    def listings_are_the_models(self) -> None:
        for (account, container), names in self.model.items():
            view, rows = self.store.listing(account, container, Selection(limit=100))
            live = {name: entry.versions[-1] for name, entry in names.items() if entry.live}
            assert [row.name for row in rows] == sorted(live)
            for row in rows:
                version = live[row.name]
                assert (row.state.version, row.state.uuid) == (version.serial, version.uuid)
                assert (row.state.size_bytes, row.state.meta) == (len(version.data), version.meta)
            assert view.record.object_count == len(live)
            assert view.record.bytes_used == sum(len(version.data) for version in live.values())


StoreMachine.TestCase.settings = settings(
    max_examples=effort.count("server's store"), stateful_step_count=40, deadline=None
)
test_the_store_behaves_like_its_model = StoreMachine.TestCase
