"""What a transaction keeps in memory must not be seen: many changes in one give what they give one by one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.server.catalogue import containers
from syncer.server.catalogue.catalogue import Catalogue, Change
from syncer.server.catalogue.schema import Settings, account_settings_key, container_settings_key
from syncer.server.errors import Refusal
from tests import effort

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
