"""What a transaction keeps in memory must not be seen: many changes in one give what they give one by one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from syncer.server.catalogue import containers
from syncer.server.catalogue.catalogue import Catalogue, Change
from syncer.server.catalogue.orders import DeleteOrder, Transfer
from syncer.server.catalogue.schema import Settings, account_settings_key, container_settings_key
from syncer.server.errors import OverQuota, Refusal
from tests import effort
from tests.unit.syncer.server.stores import Clock, at, names, open_store, put

ACCOUNTS = ["alice", "bob"]
NAMES = ["one", "two"]

Step = tuple[str, str, str, int]

changes = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "grow", "container quota", "account quota", "sum"]),
        st.sampled_from(ACCOUNTS),
        st.sampled_from(NAMES),
        st.integers(1, 9),
    ),
    max_size=12,
)


def act(change: Change, what: str, account: str, name: str, number: int) -> object:
    """Do one thing; returns what it tells."""
    if what == "create":
        return containers.create(change, account, name, bytes(15) + bytes([number]))
    if what == "sum":
        found = containers.summary(change, account)
        return found.containers, found.objects, found.bytes_used, found.settings
    try:
        return act_on_existing(change, what, account, name, number)
    except Refusal as refusal:
        return str(refusal)


def act_on_existing(change: Change, what: str, account: str, name: str, number: int) -> object:
    """The same for a container that must exist."""
    account_id, record = containers.existing(change, account, name)
    if what == "delete":
        return containers.delete(change, account, name)
    if what == "grow":  # in bytes only, so that it can still be deleted
        serial = change.next_serial()
        grown = containers.record_change(record, objects=0, size_bytes=number, version=serial, modified_us=serial)
        return change.put_container(account_id, name, grown)
    settings_of = container_settings_key(record.container_id)
    key = settings_of if what == "container quota" else account_settings_key(account_id)
    change.put_settings(key, Settings(quota_bytes=number))
    return change.container_settings(record.container_id), change.account_settings(account_id)


def outcome(path: Path, groups: list[list[Step]]) -> tuple[list[object], list[tuple[bytes, bytes]]]:
    """What each change told, and all rows at the end."""
    Catalogue.create(str(path), block_size=4096)
    catalogue = Catalogue.open(str(path))
    try:
        told: list[object] = []
        for group in groups:
            with catalogue.changing(1) as change:
                told += [act(change, *one) for one in group]
        with catalogue.reading() as view:
            tables = ("meta", "accounts", "containers", "settings", "doomed")
            return told, [row for table in tables for row in view.rows(table)]
    finally:
        catalogue.close()


@settings(deadline=None, max_examples=effort.count("server's transactions"))
@given(changes)
def test_changes_of_one_transaction_see_each_other(steps: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        together = outcome(Path(folder) / "together", [steps])
        assert together == outcome(Path(folder) / "alone", [[step] for step in steps])


@pytest.mark.parametrize("limit", [1 << 63, 1 << 64])
def test_a_container_without_a_quota_is_full_before_its_bytes_overflow_their_row(tmp_path: Path, limit: int) -> None:
    """Breaks when the sum reaches the row: that undoes the whole transaction, with what other accounts wrote in it."""
    with open_store(tmp_path / "s", Clock()) as store:
        for container in ("c", "d"):
            store.create_container("alice", container)
        put(store, at("tree/x", "d"), b"0123456789")
        put(store, at("old"), b"01234")

        def fill(change: Change) -> None:
            account, record = containers.existing(change, "alice", "c")
            change.put_container(account, "c", replace(record, bytes_used=limit - 10))

        store._commits.run(fill)
        with pytest.raises(OverQuota):
            put(store, at("new"), b"0123456789")
        for moves in (False, True):
            for source, delimiter in (("tree/x", ""), ("tree", "/")):
                with pytest.raises(OverQuota, match="8 EiB"):
                    store.transfer(
                        Transfer(source=at(source, "d"), destination=at("new"), moves=moves, delimiter=delimiter)
                    )
        assert names(store) == ["old"]
        put(store, at("old"), b"0123")  # less is always possible
        store.delete(DeleteOrder(place=at("old")))
        assert store.container("alice", "c").record.bytes_used == limit - 15
        if limit == containers.MAX_BYTES:
            put(store, at("new"), b"0123456789")
