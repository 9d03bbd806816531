from __future__ import annotations

import pytest
from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.model import (
    Action,
    BaseRow,
    Create,
    Identified,
    Move,
    Nid,
    Plan,
    SetMeta,
    Side,
    Trash,
    Update,
    meta_of,
)
from syncer.core.planner.outcome import Forgotten, Outcome, agreed
from syncer.core.planner.plan import make_plan
from tests.unit.syncer.core.trees import (
    POLICY,
    Nodes,
    base_of,
    file,
    folder,
    fresh,
    local_tag,
    plan,
    remote_tag,
    side,
)

BASE: Nodes = {1: folder("d"), 2: file("f", 1, parent=1)}


def book(base: Nodes, made: Plan) -> Outcome:
    return Outcome(base_of(base), made)


def only(actions: tuple[Action, ...], kind: type[Action]) -> Action:
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def test_a_row_is_written_when_both_sides_agree_and_carries_both_evidences() -> None:
    made = plan(BASE, BASE, {1: BASE[1], 2: file("f", 5, parent=1)})
    (change,) = book(BASE, made).applied(only(made.local, Update), local_tag(77))
    assert change == BaseRow(nid=Nid(2), node=file("f", 5, parent=1), local=local_tag(77), remote=remote_tag(2))


def test_half_a_change_writes_nothing() -> None:
    """Moved on the server, edited here: two actions on two sides, one row at the end."""
    made = plan(BASE, {1: BASE[1], 2: file("f", 5, parent=1)}, {1: BASE[1], 2: file("g", 1)})
    outcome = book(BASE, made)
    assert outcome.applied(only(made.local, Move), local_tag(2)) == []
    assert len(outcome.applied(only(made.remote, Update), remote_tag(2, version=9))) == 1


def test_a_row_waits_until_the_attributes_of_the_other_side_are_set_here() -> None:
    """Moved and marked on the server. With them in the row, a cycle that ends after the move would look like the one
    before a removal: the next one would find none here, and take them from the server."""
    base, marks = {1: file("a", 1)}, ((b"one", b"1"),)
    meta = replace(base[1].meta, xattrs=marks)
    made = plan(base, base, {1: replace(base[1], name=b"b", meta=meta)})
    move, setting = made.local
    outcome = book(base, made)
    assert outcome.applied(move, local_tag(1)) == []
    assert not outcome.is_settled()
    (row,) = outcome.applied(setting, local_tag(1, ctime=2))
    assert isinstance(row, BaseRow)
    assert row.node.meta == meta
    assert outcome.is_settled()


def test_a_row_waits_for_its_parents_row() -> None:
    made = plan({}, {5: folder("d"), 6: file("f", 1, parent=5)}, {})
    mkdir, create = made.remote
    outcome = book({}, made)
    second = outcome.applied(mkdir, remote_tag(50))
    assert [change.nid for change in second] == [5]
    assert [change.nid for change in outcome.applied(create, remote_tag(60))] == [6]


def test_rows_that_waited_follow_their_parents_row() -> None:
    local: Nodes = {5: folder("d", mode=0o755), 6: file("f", 1, parent=5)}
    remote: Nodes = {5: folder("d", mode=0o700), 6: file("f", 1, parent=5)}
    made = plan({}, local, remote)
    outcome = book({}, made)
    assert outcome.adoptions() == []
    assert [change.nid for change in outcome.applied(made.local[0], local_tag(5))] == [5, 6]


def test_a_row_goes_when_both_sides_are_without_the_node() -> None:
    made = plan(BASE, BASE, {1: BASE[1]})
    assert book(BASE, made).applied(only(made.local, Trash), None) == [Forgotten(nid=Nid(2))]
    assert book(BASE, plan(BASE, {1: BASE[1]}, {1: BASE[1]})).adoptions() == [Forgotten(nid=Nid(2))]


def test_the_row_of_a_directory_that_is_gone_stays_until_no_other_has_its_path_by_it() -> None:
    """Deleted here, while the file in it was moved on the server: the cycle may end before the file is here again."""
    made = plan(BASE, {}, {1: BASE[1], 2: file("a", 1)})
    outcome = book(BASE, made)
    assert outcome.applied(only(made.remote, Trash), None) == []
    row = BaseRow(nid=Nid(2), node=file("a", 1), local=local_tag(7), remote=remote_tag(2))
    assert outcome.applied(only(made.local, Create), local_tag(7)) == [row, Forgotten(nid=Nid(1))]


def test_directories_that_are_gone_keep_the_rows_above_them_and_go_with_the_last_file() -> None:
    base: Nodes = {1: folder("d"), 2: folder("e", parent=1), 3: file("f", 1, parent=2), 4: file("g", 2, parent=2)}
    made = plan(base, {}, {3: file("f", 1), 4: file("g", 2)})
    outcome = book(base, made)
    assert outcome.adoptions() == []
    first, last = made.local
    assert [change.nid for change in outcome.applied(first, local_tag(7))] == [3]
    assert [change.nid for change in outcome.applied(last, local_tag(8))] == [4, 2, 1]


ATTRIBUTES = ((b"large", bytes(5000)),)


@pytest.mark.parametrize("attributes", [False, True])
def test_metadata_that_cannot_be_had_here_withholds_no_row(attributes: bool) -> None:
    """Else what is below has none for ever: each edit elsewhere is a conflict, each deletion is undone."""
    local: Nodes = {5: folder("d", mode=0o777), 6: file("f", 1, parent=5)}
    theirs = folder("d", mode=0o755)
    remote: Nodes = {
        5: replace(theirs, meta=replace(theirs.meta, xattrs=ATTRIBUTES if attributes else None)),
        6: local[6],
    }
    made = plan({}, local, remote)
    outcome = book({}, made)
    assert outcome.adoptions() == []
    setting = only(made.local, SetMeta)
    outcome.failed(setting)
    above, below = outcome.partly(setting.nid)
    assert isinstance(above, BaseRow)
    assert isinstance(below, BaseRow)
    known = replace(local[5].meta, special=0)
    assert above == BaseRow(nid=setting.nid, node=replace(local[5], meta=known), local=above.local, remote=None)
    assert (below.node, below.remote) == (local[6], remote_tag(6))
    assert not outcome.is_settled()
    # The next cycle tries it again and takes nothing for a removal; what is deleted elsewhere goes.
    rows = BaseIndex([above, below])
    here = Identified(tree={above.nid: local[5], below.nid: local[6]}, tags={above.nid: local_tag(5)})
    there = Identified(tree={above.nid: remote[5]}, tags={above.nid: remote_tag(5)})
    again = make_plan(rows, here, there, POLICY, fresh())
    assert not again.remote
    assert only(again.local, SetMeta).meta == setting.meta
    assert only(again.local, Trash).nid == below.nid


def test_metadata_that_the_server_lacks_is_told_before_the_rest_of_it_is_agreed_on() -> None:
    """A row with the mode that was set here would have the next cycle take the server's older one for a change."""
    base: Nodes = {1: file("a", 1, mode=0o644, mtime=1)}
    local: Nodes = {1: file("a", 2, mode=0o600, mtime=1)}
    theirs = file("a", 2, mode=0o644, mtime=1)
    remote: Nodes = {1: replace(theirs, meta=replace(theirs.meta, xattrs=ATTRIBUTES))}
    made = plan(base, local, remote)
    outcome = book(base, made)
    setting, telling = only(made.local, SetMeta), only(made.remote, SetMeta)
    outcome.failed(setting)
    assert outcome.partly(setting.nid) == []
    (row,) = outcome.applied(telling, remote_tag(1, version=2))
    assert isinstance(row, BaseRow)
    assert (row.node.meta.mode, row.node.meta.xattrs, row.remote) == (0o600, None, None)


def test_what_is_known_keeps_its_row_though_its_metadata_cannot_be_had_here() -> None:
    base: Nodes = {1: folder("d", mode=0o777)}
    made = plan(base, base, {1: folder("d", mode=0o755)})
    (setting,) = made.local
    outcome = book(base, made)
    outcome.failed(setting)
    assert outcome.partly(setting.nid) == []
    assert not outcome.is_settled()


def test_a_row_waits_until_it_is_not_in_itself() -> None:
    """What was in it is above it now; and the one between them stays in its directory, so it has no row of its own."""
    base: Nodes = {1: folder("a"), 2: folder("b", parent=1), 3: folder("c", parent=2)}
    local: Nodes = {2: folder("b"), 3: base[3], 1: folder("a", parent=3)}
    made = plan(base, local, base)
    outcome = book(base, made)
    recorded = [change.nid for action in made.remote for change in outcome.applied(action, remote_tag(9))]
    assert recorded == [2, 1]
    lowest: Nodes = {nid: local[nid] for nid in (1, 2, 3)}  # who would be in itself is asked first
    first = book(base, plan(base, lowest, lowest))
    assert [change.nid for change in first.adoptions()] == [2, 1]


def test_directories_that_are_in_one_another_since_a_crash_do_not_keep_each_other() -> None:
    base: Nodes = {1: folder("d", parent=2), 2: folder("e", parent=1)}
    assert {change.nid for change in book(base, plan(base, {}, {})).adoptions()} == {1, 2}


def test_what_agrees_already_is_adopted_without_an_action() -> None:
    edited: Nodes = {1: BASE[1], 2: file("f", 5, parent=1)}
    made = plan(BASE, edited, edited)
    assert made.is_empty
    assert [change.nid for change in book(BASE, made).adoptions()] == [2]


def test_a_failed_copy_holds_back_what_would_replace_its_source() -> None:
    base: Nodes = {1: file("a", 1)}
    made = plan(base, {1: file("a", 2)}, {1: file("a", 3)})
    outcome = book(base, made)
    outcome.failed(only(made.local, Create))
    assert outcome.obstacle(only(made.local, Update)) == "its conflict copy could not be made"


def test_a_failed_directory_holds_back_what_goes_into_it() -> None:
    made = plan({}, {}, {1: folder("d"), 2: file("f", 1, parent=1)})
    outcome = book({}, made)
    mkdir, create = made.local
    outcome.failed(mkdir)
    assert outcome.obstacle(mkdir) is not None
    assert outcome.obstacle(create) == "its directory is not there"


def test_a_failed_park_holds_back_what_wants_the_place() -> None:
    base: Nodes = {1: file("a", 1), 2: file("b", 2)}
    made = plan(base, base, {1: file("b", 1), 2: file("a", 2)})
    outcome = book(base, made)
    park, move, last = made.local
    outcome.failed(park)
    assert outcome.obstacle(move) == "its place is still taken"
    assert outcome.obstacle(last) == "an earlier step on it failed"


def test_what_another_node_stands_for_stays_until_that_is_there() -> None:
    """`a` was moved here to where the server has an equal file: it goes there, if that file is still there."""
    base: Nodes = {1: file("a", 1)}
    made = plan(base, {1: file("b", 1)}, {1: file("a", 1), 5: file("b", 1)})
    trash = only(made.remote, Trash)
    assert isinstance(trash, Trash)
    outcome = book(base, made)
    assert outcome.obstacle(trash) is None
    assert outcome.obstacle(replace(trash, absorbed_by=Nid(77))) == "what should stand for it could not be made"


def test_a_row_waits_until_the_server_is_told_the_mode_that_its_marker_lacks() -> None:
    """A row before that would say that the server knows: if the cycle ends in between, nobody tells it ever."""
    base: Nodes = {1: folder("d", mode=0o700)}
    known = base_of(base)
    there = Identified(tree={Nid(1): folder("d", mode=None)}, tags={Nid(1): remote_tag(1, version=9)})
    made = make_plan(known, side(base, local_tag), there, POLICY, fresh())
    (setting,) = made.remote
    assert isinstance(setting, SetMeta)
    assert setting.meta == meta_of(0o700)
    outcome = Outcome(known, made)
    assert outcome.adoptions() == []
    assert outcome.retagged(Side.LOCAL, Nid(1), local_tag(1)) == []
    (row,) = outcome.applied(setting, remote_tag(1, version=10))
    assert row == BaseRow(nid=Nid(1), node=base[1], local=local_tag(1), remote=remote_tag(1, version=10))


def test_a_directory_that_is_not_empty_is_not_trashed() -> None:
    made = plan(BASE, BASE, {})
    outcome = book(BASE, made)
    inner, outer = made.local
    outcome.failed(inner)
    assert outcome.obstacle(outer) == "it is not empty"


def test_paths_follow_what_was_really_done() -> None:
    made = plan(BASE, BASE, {1: folder("e"), 2: file("g", 1, parent=1)})
    outcome = book(BASE, made)
    move_d, move_f = made.local
    assert outcome.path_after(move_f) == b"d/g"
    outcome.applied(move_d, local_tag(1))
    assert outcome.path(Side.LOCAL, Nid(2)) == b"e/f"
    assert outcome.path_after(move_f) == b"e/g"
    assert outcome.below(Side.LOCAL, Nid(1)) == [2]


def test_our_own_change_renews_the_evidence() -> None:
    made = plan(BASE, BASE, {1: BASE[1], 2: file("f", 5, parent=1)})
    outcome = book(BASE, made)
    outcome.applied(only(made.local, Update), local_tag(2, ctime=99))
    assert outcome.tag(Side.LOCAL, Nid(2)) == local_tag(2, ctime=99)


@pytest.mark.parametrize(
    ("local", "remote", "agree"),
    [
        (file("a", 1), file("a", 1), True),
        (file("a", 1), file("b", 1), False),
        (file("a", 1), file("a", 2), False),
        (file("a", 1, mode=0o600), file("a", 1), False),
        (file("a", 1), file("a", 1, mode=None, mtime=None), True),
        (file("a", 1, mode=0o600), file("a", 1, mode=None), False),  # changed here, the server was not told yet
        (file("a", 1, parent=-1), file("a", 1, parent=-1), False),
    ],
)
def test_sides_agree(local: object, remote: object, agree: bool) -> None:
    assert (agreed(file("a", 1), local, remote) is not None) == agree  # type: ignore[arg-type] # nodes


def test_agreed_metadata_is_what_either_side_knows() -> None:
    node = agreed(None, file("a", 1, mode=0o600, mtime=5), file("a", 1, mode=None, mtime=5))
    assert node is not None
    assert node.meta == meta_of(0o600, mtime_ns=5)
