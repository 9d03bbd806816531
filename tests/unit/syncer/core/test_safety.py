from __future__ import annotations

import pytest

from syncer.core.model import BaseRow, Deletions, Nid, Position, Side
from syncer.core.planner.safety import (
    ContainerIdentity,
    RootIdentity,
    check_age,
    check_container,
    check_deletions,
    check_root,
    objection,
)
from syncer.errors import RootIdentityError, SafetyStopError
from syncer.remote.serials import SERIALS, Cursor
from tests.unit.syncer.core.trees import Nodes, file, folder, plan, remote_file, remote_tag

ROOT = RootIdentity(marker="m", ino=7, volume=False)


def deletions(deleted: int, before: int, after: int | None = None) -> Deletions:
    return Deletions(
        side=Side.LOCAL, nodes_before=before, nodes_after=before - deleted if after is None else after, deleted=deleted
    )


@pytest.mark.parametrize(
    ("deleted", "before", "after", "stops"),
    [
        (0, 0, 0, False),
        (9, 10, 1, False),  # nine of ten: an everyday change in a small folder
        (10, 20, 10, True),
        (10, 21, 11, False),
        (1000, 100_000, 99_000, False),
        (1001, 100_000, 98_999, True),
        (3, 3, 0, True),
        (1, 1, 0, True),
        (1, 1, 5, False),  # replaced, not emptied
        (0, 5, 0, False),  # everything moved or unified away
    ],
)
def test_the_guard_objects(deleted: int, before: int, after: int, stops: bool) -> None:
    assert (objection(deletions(deleted, before, after)) is not None) == stops


def test_one_deletion_is_told_as_one() -> None:
    assert objection(deletions(1, 1)) == "the plan would leave the local side empty (1 deletion)"
    assert objection(deletions(2, 2)) == "the plan would leave the local side empty (2 deletions)"


def many(count: int) -> Nodes:
    return {1: folder("d"), **{nid: file(f"f{nid}", nid % 200, parent=1) for nid in range(2, count + 1)}}


def test_a_plan_that_would_empty_a_side_needs_consent_to_exactly_that_plan() -> None:
    made = plan(many(30), many(30), {})
    with pytest.raises(SafetyStopError) as caught:
        check_deletions(made)
    assert caught.value.digest == made.digest
    assert caught.value.deletions == 30
    assert f"--allow-deletes {made.digest}" in str(caught.value)
    check_deletions(made, made.digest)
    with pytest.raises(SafetyStopError):
        check_deletions(made, "0" * 16)


def test_moves_are_no_deletions() -> None:
    base = many(60)
    check_deletions(plan(base, base, {**{n: node.placed(node.parent, b"x" + node.name) for n, node in base.items()}}))


def test_the_digest_is_stable_and_names_the_deleted_nodes_only() -> None:
    base = many(30)
    one = plan(base, base, {1: base[1]})
    again = plan(base, base, {1: base[1], 99: file("unrelated", 3)})
    other = plan(base, base, {1: base[1], 2: base[2]})
    assert one.digest == again.digest
    assert one.digest != other.digest


def test_the_digest_knows_the_versions() -> None:
    base: Nodes = {1: file("a", 1), 2: file("b", 2)}
    here = plan(base, base, {2: base[2]})
    there = plan(base, {2: base[2]}, base)
    assert here.digest != there.digest


def test_the_same_root_passes() -> None:
    check_root(ROOT, ROOT)


@pytest.mark.parametrize(
    "found",
    [
        None,
        RootIdentity(marker="", ino=7, volume=False),
        RootIdentity(marker="other", ino=7, volume=False),
        RootIdentity(marker="m", ino=8, volume=False),
        RootIdentity(marker="m", ino=7, volume=True),
    ],
)
def test_another_root_is_refused(found: RootIdentity | None) -> None:
    with pytest.raises(RootIdentityError) as caught:
        check_root(ROOT, found)
    assert caught.value.exit_code == 18


def at(version: int) -> Position:
    return Cursor(identity="", version=version, modified_us=0).position


def container(uuid: str | None = "u", block_size: int = 65536, block_hash: str = "sha256") -> ContainerIdentity:
    return ContainerIdentity(uuid=uuid, seen=at(10), block_size=block_size, block_hash=block_hash)


@pytest.mark.parametrize(
    "found",
    [
        container("other"),
        container(None),
        container(block_size=4096),
        container(block_hash="md5"),
    ],
)
def test_another_container_is_refused(found: ContainerIdentity) -> None:
    with pytest.raises(RootIdentityError):
        check_container(container(), found)


def test_the_same_container_passes() -> None:
    check_container(container(), container())
    check_container(container(None), container("now-it-tells"))


def test_an_older_copy_of_the_container_is_refused() -> None:
    for told in (10, 11):
        check_age(at(10), [], [], at(told), SERIALS)
    with pytest.raises(RootIdentityError, match="version 10 or later, found version 9"):
        check_age(at(10), [], [], at(9), SERIALS)


def row(uuid: int, version: int) -> BaseRow:
    return BaseRow(nid=Nid(uuid), node=file(f"f{uuid}", 1), local=None, remote=remote_tag(uuid, version=version))


def test_a_listing_from_before_our_own_writes_is_refused() -> None:
    """What was written since the container was last looked at is in no `ContainerIdentity` yet."""
    rows = [row(1, 3), row(2, 7)]
    check_age(None, rows, [], at(7), SERIALS)
    with pytest.raises(RootIdentityError, match="version 7 or later"):
        check_age(None, rows, [], at(6), SERIALS)


def test_a_server_that_was_put_back_and_then_written_to_by_others_is_refused() -> None:
    """It tells of a later moment than is known here, but what this device wrote last is gone from it."""
    rows = [row(1, 3), row(2, 7)]
    check_age(at(7), rows, [remote_file("f2", 1, uuid=2, version=12)], at(20), SERIALS)
    with pytest.raises(RootIdentityError, match="version 7 of f2 or later, found version 5"):
        check_age(at(7), rows, [remote_file("f2", 1, uuid=2, version=5)], at(20), SERIALS)


def test_where_the_server_tells_no_version_a_known_object_gives_the_age_away() -> None:
    rows = [row(1, 3), row(2, 7)]
    told = [remote_file("f2", 1, uuid=2, version=7), remote_file("new", 1, uuid=3, version=1)]
    check_age(None, rows, told, at(0), SERIALS)
    check_age(None, rows, [], at(0), SERIALS)
    with pytest.raises(RootIdentityError, match="version 7 of f2 or later"):
        check_age(None, rows, [remote_file("f2", 1, uuid=2, version=6)], at(0), SERIALS)
