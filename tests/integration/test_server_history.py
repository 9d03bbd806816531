"""What was, over HTTP: listings of a moment, and forgetting it; listings by metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from syncer.server.budget import Purse
from syncer.server.calls import memory
from syncer.server.folder import ServerFolder
from syncer.server.store.store import Store
from tests.integration.live_server import BLOCK, Client, serving
from tests.unit.syncer.server.stores import Clock


@dataclass
class Served:
    """A server whose clock is the test's."""

    alice: Client
    clock: Clock

    def second(self) -> int:
        """The next one; returns the one that ended."""
        ended = self.clock.now_us // 1_000_000
        self.clock.now_us = (ended + 1) * 1_000_000
        return ended


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    clock = Clock()
    with (
        Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK), clock_us=clock) as store,
        serving(store) as address,
    ):
        client = Client(address)
        client("PUT", "/c")
        yield Served(client, clock)
        client.close()


def versions(client: Client, path: str) -> list[int]:
    return [version for version, _ in client("GET", f"{path}?version=list").json["versions"]]


def test_a_listing_of_a_moment_shows_what_was(served: Served) -> None:
    alice = served.alice
    alice("PUT", "/c/deleted", b"1")
    alice("PUT", "/c/changed", b"1")
    first = served.second()
    alice("DELETE", "/c/deleted")
    alice("PUT", "/c/changed", b"22")
    alice("PUT", "/c/new/d", b"1")
    second = served.second()
    alice("DELETE", "/c/changed")
    served.second()

    def sizes(until: int) -> dict[str, int]:
        return {row["name"]: row["bytes"] for row in alice("GET", f"/c?format=json&until={until}").json}

    assert sizes(first - 1) == {}
    assert sizes(first) == {"changed": 1, "deleted": 1}
    assert sizes(second) == {"changed": 2, "new/d": 1}
    assert alice.names("c") == ["new/d"]
    rows = alice("GET", f"/c?format=json&until={second}&delimiter=/").json
    assert [row.get("name") or row["subdir"] for row in rows] == ["changed", "new/"]


def test_history_up_to_a_moment_is_forgotten_and_the_present_stays(served: Served) -> None:
    alice = served.alice
    numbers = []
    moments = []
    for number in range(4):
        numbers.append(alice("PUT", "/c/f", b"%d" % number).version)
        alice("PUT", "/c/gone", b"%d" % number)
        moments.append(served.second())
    alice("DELETE", "/c/gone")
    assert alice("DELETE", f"/c/f?until={moments[1]}").status == 204
    assert versions(alice, "/c/f") == numbers[2:]
    assert len(versions(alice, "/c/gone")) == 4
    assert alice("GET", f"/c/f?version={numbers[0]}").status == 404
    served.second()
    assert alice("DELETE", f"/c?until={moments[3]}").status == 204
    assert versions(alice, "/c/f") == numbers[3:]
    assert versions(alice, "/c/gone") == []
    assert alice("GET", "/c/f").body == b"3"
    assert alice("DELETE", f"/c/none?until={moments[3]}").status == 404


def test_purging_many_names_goes_on_behind_each_batch(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncer.server.catalogue.purge.BATCH", 3)
    for _ in range(2):
        for number in range(10):
            served.alice("PUT", f"/c/{number}", b"x")
    now = served.second()
    served.alice("DELETE", f"/c?until={now}")
    assert [len(versions(served.alice, f"/c/{number}")) for number in range(10)] == [1] * 10


def test_kamaki_deletes_a_container_with_the_time_of_day(served: Served) -> None:
    assert served.alice("DELETE", "/c?until=1800000000.123").status == 204
    assert served.alice("HEAD", "/c").status == 404


def test_a_moment_that_means_nothing_is_refused(served: Served) -> None:
    """Breaks when an `until` is ignored: a purge would delete the object."""
    alice = served.alice
    alice("PUT", "/c/f", b"x")
    for method, path in (
        ("DELETE", "/c/f?until=1.5"),
        ("DELETE", "/c/f?until="),
        ("DELETE", "/c/f?until=7&delimiter=/"),
        ("GET", "/c?until=x"),
        ("GET", "/c/f?until=7"),
        ("HEAD", "/c?until=7"),
        ("GET", "?until=7"),
        ("PUT", "/c/f?until=7"),
        ("GET", "/c/f?meta=k"),
        ("GET", "/c?meta=k%3E3"),
    ):
        assert alice(method, path).status == 400
    assert alice("GET", "/c/f").body == b"x"


def test_a_listing_by_metadata(served: Served) -> None:
    alice = served.alice
    alice("PUT", "/c/red", b"", X_Object_Meta_Colour="red", X_Object_Meta_Size="1")
    alice("PUT", "/c/blue", b"", X_Object_Meta_Colour="blue")
    alice("PUT", "/c/none", b"")
    assert alice.names("c", "&meta=colour") == ["blue", "red"]
    assert alice.names("c", "&meta=Colour%3Dred") == ["red"]
    assert alice.names("c", "&meta=!colour") == ["none"]
    assert alice.names("c", "&meta=colour,!size") == ["blue"]


def test_a_short_list_of_versions_is_charged_little_and_a_long_one_is_whole(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took 32 MiB of its account's 256, so that nine wrote nobody an answer at once (12.13)."""
    charged: list[int] = []
    reserve = Purse.reserve

    async def noticed(self: Purse, size_bytes: int) -> None:
        charged.append(size_bytes)
        await reserve(self, size_bytes)

    alice = served.alice
    for number in range(3):
        alice("PUT", "/c/few", b"%d" % number)
    monkeypatch.setattr(Purse, "reserve", noticed)
    assert len(versions(alice, "/c/few")) == 3
    assert charged == [256_000]
    monkeypatch.setattr(memory, "FEW_VERSIONS", 3)
    alice("PUT", "/c/few", b"4")
    charged.clear()
    assert len(versions(alice, "/c/few")) == 4
    assert charged == [256_000, 32_000_000]
