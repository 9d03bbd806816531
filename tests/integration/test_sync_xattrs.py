"""Extended attributes between devices: folders and mounted volumes against a real server."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.syncing import BLOCK, Sync, linked

LARGE = random.Random(3).randbytes(3000)  # on ext4 one block of 4 KiB holds all of a file's attributes


@pytest.fixture(params=["folder", "volume"])
def pair(sync: Sync, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Path, Path]]:
    """A folder, and another one or a mounted volume, as devices that sync attributes."""
    first, second = tmp_path / "first", tmp_path / "second"
    if request.param == "volume":
        second = request.getfixturevalue("mounts")[0]
    for root in (first, second):
        root.mkdir(exist_ok=True)
    with linked(sync, (first, second), "--xattrs"):
        yield first, second


def attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.")}


def exchange(sync: Sync, *roots: Path) -> None:
    for root in roots:
        sync.reconcile(root)


def test_attributes_of_files_and_directories_travel_and_nothing_follows(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "d").mkdir()
    (first / "d" / "f").write_bytes(b"content")
    os.setxattr(first / "d", "user.colour", b"red")
    os.setxattr(first / "d" / "f", "user.origin", b"\0\xff")
    os.setxattr(first / "d" / "f", "user.large", LARGE)
    exchange(sync, first, second)
    assert attributes(second / "d") == {"user.colour": b"red"}
    assert attributes(second / "d" / "f") == {"user.origin": b"\0\xff", "user.large": LARGE}
    for root in (first, second, first):
        again = sync.reconcile(root)
        assert (again["pushed"], again["pulled"], again["mutating_requests"]) == (0, 0, 0)


def test_changes_and_removals_on_both_sides_meet(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "f").write_bytes(b"content")
    for name in ("a", "b", "c"):
        os.setxattr(first / "f", f"user.{name}", b"0")
    exchange(sync, first, second)
    os.setxattr(first / "f", "user.a", b"1")
    os.removexattr(first / "f", "user.b")
    os.setxattr(second / "f", "user.d", b"2")
    os.setxattr(second / "f", "user.a", b"9")  # the server has the first device's by then
    exchange(sync, first, second, first)
    assert attributes(first / "f") == attributes(second / "f") == {"user.a": b"1", "user.c": b"0", "user.d": b"2"}


def test_a_removal_is_not_forgotten_when_the_content_is_changed_before_others_look(
    sync: Sync, pair: tuple[Path, Path]
) -> None:
    first, second = pair
    (first / "f").write_bytes(b"content")
    os.setxattr(first / "f", "user.a", b"0")
    exchange(sync, first, second)
    os.removexattr(second / "f", "user.a")
    sync.reconcile(second)
    (second / "f").write_bytes(b"changed")
    exchange(sync, second, first)
    assert (attributes(first / "f"), (first / "f").read_bytes()) == ({}, b"changed")
    for root in (second, first):
        again = sync.reconcile(root)
        assert (again["pushed"], again["pulled"], again["mutating_requests"]) == (0, 0, 0)


def test_a_change_of_attributes_sends_no_content_and_a_change_of_content_keeps_attributes(
    sync: Sync, pair: tuple[Path, Path]
) -> None:
    first, second = pair
    (first / "f").write_bytes(b"x" * 3 * BLOCK)
    exchange(sync, first, second)
    os.setxattr(second / "f", "user.a", b"1")
    assert sync.reconcile(second)["blocks_sent"] == 0
    assert sync.reconcile(first)["blocks_received"] == 0
    (first / "f").write_bytes(b"y" * 3 * BLOCK)
    exchange(sync, first, second)
    assert attributes(second / "f") == {"user.a": b"1"}
    assert (second / "f").read_bytes() == b"y" * 3 * BLOCK


def test_the_attributes_of_a_directory_alone_are_noticed(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "d" / "e").mkdir(parents=True)
    exchange(sync, first, second, first)
    os.setxattr(first / "d" / "e", "user.a", b"1")
    exchange(sync, first, second)
    assert attributes(second / "d" / "e") == {"user.a": b"1"}
    os.removexattr(second / "d" / "e", "user.a")
    exchange(sync, second, first)
    assert attributes(first / "d" / "e") == {}


def test_without_the_option_attributes_are_neither_sent_nor_set_nor_lost(
    sync: Sync, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = pair
    plain = tmp_path / "plain"
    plain.mkdir()
    sync("link", plain, sync.url, "--token-file", sync.token_file)
    (first / "f").write_bytes(b"one")
    os.setxattr(first / "f", "user.a", b"1")
    exchange(sync, first, plain)
    assert attributes(plain / "f") == {}
    os.setxattr(plain / "f", "user.own", b"mine")
    (plain / "f").write_bytes(b"two")
    exchange(sync, plain, first, second)
    assert (second / "f").read_bytes() == b"two"
    assert attributes(first / "f") == attributes(second / "f") == {"user.a": b"1"}
    (first / "f").write_bytes(b"three")
    exchange(sync, first, plain)
    assert (plain / "f").read_bytes() == b"three"
    assert attributes(plain / "f") == {"user.own": b"mine"}


def test_switching_the_option_on_unites_and_removes_nothing(
    sync: Sync, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    first, _ = pair
    plain = tmp_path / "plain"
    plain.mkdir()
    sync("link", plain, sync.url, "--token-file", sync.token_file)
    (first / "f").write_bytes(b"one")
    (first / "g").write_bytes(b"one")
    os.setxattr(first / "f", "user.a", b"1")
    os.setxattr(first / "g", "user.b", b"2")
    exchange(sync, first, plain, plain)
    os.setxattr(plain / "f", "user.own", b"mine")
    sync("link", plain, sync.url, "--token-file", sync.token_file, "--xattrs")
    exchange(sync, plain, first)
    assert attributes(plain / "f") == attributes(first / "f") == {"user.a": b"1", "user.own": b"mine"}
    assert attributes(plain / "g") == attributes(first / "g") == {"user.b": b"2"}


def test_what_two_devices_made_before_they_met_keeps_the_attributes_of_both(
    sync: Sync, pair: tuple[Path, Path]
) -> None:
    """Equal files and directories become one; none of their attributes was removed by anybody."""
    for root, name in zip(pair, ("theirs", "mine"), strict=True):
        (root / "d").mkdir()
        (root / "f").write_bytes(b"equal")
        for path in (root / "d", root / "f"):
            os.setxattr(path, f"user.{name}", b"1")
            os.setxattr(path, "user.both", name.encode())
    first, second = pair
    exchange(sync, first, second, first)
    for root in pair:
        for path in (root / "d", root / "f"):
            assert attributes(path) == {"user.mine": b"1", "user.theirs": b"1", "user.both": b"theirs"}
    sync.at_rest(first, second)


def test_what_is_too_large_to_travel_is_reported_and_left_alone(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (second / "f").write_bytes(b"content")
    os.setxattr(second / "f", "user.small", b"1")
    expect = 0
    if os.path.ismount(second):  # ext4 would not take it
        os.setxattr(second / "f", "user.large", bytes(60_000))
        expect = 3
    for _ in range(2):
        sync.reconcile(second, expect=expect)
        assert ("user.large" in sync.out) == bool(expect)
    exchange(sync, first)
    assert attributes(first / "f") == {"user.small": b"1"}
    os.setxattr(first / "f", "user.small", b"2")
    exchange(sync, first)
    sync.reconcile(second, expect=expect)
    (first / "f").write_bytes(b"other")
    exchange(sync, first)
    sync.reconcile(second, expect=expect)
    assert (second / "f").read_bytes() == b"other"
    left = {"user.large": bytes(60_000)} if expect else {}
    assert attributes(second / "f") == {"user.small": b"2", **left}
