"""Versions of containers: what is counted, and where counting stops."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from syncer.errors import UsageError
from syncer.server.catalogue import histories
from syncer.server.catalogue.catalogue import Catalogue
from syncer.server.catalogue.histories import Kept
from syncer.server.catalogue.orders import DeleteOrder, PurgeOrder, SettingsOrder
from syncer.server.store.store import Store
from tests.unit.syncer.server.stores import HOUR_US, Clock, at, open_store, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", Clock()) as opened:
        opened.create_container("alice", "c")
        yield opened


def kept(store: Store, container: str = "c", most: int | None = None) -> Kept:
    with store._catalogue.reading() as view:
        found = {row.name: each for row, each, _ in histories.all_kept(view, "alice", most)}
    return found[container]


def test_old_versions_are_told_apart_from_current_ones_and_deletions(store: Store) -> None:
    put(store, at("f"), b"1")
    put(store, at("f"), b"22")
    put(store, at("f"), b"333")
    put(store, at("g" * 900), b"4444")
    store.delete(DeleteOrder(place=at("g" * 900)))
    put(store, at("empty"), b"")
    assert kept(store) == Kept(versions=5, old_bytes=1 + 2 + 4, is_whole=True)


def test_what_was_written_again_after_a_deletion_has_its_whole_history(store: Store) -> None:
    put(store, at("f"), b"1")
    store.delete(DeleteOrder(place=at("f")))
    put(store, at("f"), b"22")
    assert kept(store) == Kept(versions=2, old_bytes=1, is_whole=True)
    store.purge(PurgeOrder(place=at("f"), until_us=Clock().now_us + HOUR_US))
    assert kept(store) == Kept(versions=1, old_bytes=0, is_whole=True)


def test_a_container_without_history_keeps_current_versions_only(store: Store) -> None:
    store.set_container("alice", "c", SettingsOrder(keeps_history=False))
    put(store, at("f"), b"1")
    put(store, at("f"), b"22")
    assert kept(store) == Kept(versions=1, old_bytes=0, is_whole=True)


def test_of_too_many_versions_some_are_counted_and_it_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "_BATCH", 2)
    store.create_container("alice", "d")
    for number in range(5):
        put(store, at(f"f{number}"), b"1")
        put(store, at(f"f{number}"), b"1")
    put(store, at("f", "d"), b"1")
    assert kept(store, most=7) == Kept(versions=6, old_bytes=2, is_whole=False)
    assert kept(store, "d", most=7) == Kept(versions=1, old_bytes=0, is_whole=True)
    assert kept(store, "d", most=10) == Kept(versions=0, old_bytes=0, is_whole=False)
    assert kept(store, "d", most=11).is_whole


def test_a_catalogue_of_an_older_release_is_not_called_damaged(tmp_path: Path) -> None:
    Catalogue.create(str(tmp_path / "c"), block_size=4096)
    with lmdb.open(str(tmp_path / "c"), max_dbs=20) as environment, environment.begin(write=True) as txn:
        txn.drop(environment.open_db(b"moves", txn=txn))
        txn.put(b"format", struct.pack(">IQ", 2, 4096), db=environment.open_db(b"meta", txn=txn))
    with pytest.raises(UsageError, match="older release"):
        Catalogue.open(str(tmp_path / "c"))
    Catalogue.create(str(tmp_path / "c"), block_size=4096)
    Catalogue.open(str(tmp_path / "c")).close()
