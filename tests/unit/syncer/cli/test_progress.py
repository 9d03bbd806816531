"""How far a cycle is, before and after there is a plan."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from syncer.cli.output.progress import Progress, percent
from syncer.ports.remote import Counters


@dataclass
class Hashed:
    """Stands for `local.folder.reading.Reading`."""

    total_bytes: int
    done_bytes: int


@given(done=st.integers(0, 1 << 60), total=st.integers(1, 1 << 60))
def test_a_hundred_percent_is_all_of_it_and_no_less(done: int, total: int) -> None:
    value = int(percent(done, total).removesuffix(" %"))
    assert 0 <= value <= 100
    assert (value == 100) == (done >= total)


def test_looking_tells_how_much_is_hashed_and_what_came_of_the_servers_list() -> None:
    counters = Counters()
    progress = Progress(counters=counters, hashing=Hashed(total_bytes=10 << 30, done_bytes=0))
    assert progress.looking_line() == "looking at both sides · hashed 0 B of 10 GiB, 0 %"
    progress.hashing = Hashed(total_bytes=10 << 30, done_bytes=(10 << 30) // 3)
    counters.bytes_received = 3 << 20
    assert progress.looking_line().endswith("of 10 GiB, 33 % · server's list: ↓ 3 MiB")
    assert progress.looking() == {
        "bytes_hashed": (10 << 30) // 3, "bytes_to_hash": 10 << 30, "bytes_received": 3 << 20,
    }  # fmt: skip


def test_where_nothing_is_read_there_is_no_share_of_it() -> None:
    """A mounted volume knows its contents."""
    assert Progress(counters=Counters()).looking_line() == "looking at both sides"


def test_what_travels_has_a_percentage_too() -> None:
    progress = Progress(counters=Counters(), files=4, files_done=1, bytes=200, bytes_done=100)
    assert progress.line(1.0).startswith("1 of 4 · 100 B of 200 B, 50 % · ")
    assert Progress(counters=Counters(), files=4).line(1.0).startswith("0 of 4 · 0 B of 0 B · ")
