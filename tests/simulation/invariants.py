"""The invariants of docs/design/planner.md section 5, by name."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import count

from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.conflict import CONFLICT_MARK
from syncer.core.model import (
    PARK,
    ROOT,
    Action,
    BaseRow,
    Create,
    Identified,
    Kind,
    LocalTag,
    Mkdir,
    Move,
    Nid,
    Node,
    NoteKind,
    Park,
    Plan,
    SetMeta,
    Side,
    Trash,
    Tree,
    Update,
)
from syncer.core.paths import paths_of
from syncer.core.planner import merge as merge_module
from syncer.core.planner.merge import Policy
from syncer.core.planner.outcome import Outcome
from syncer.core.planner.safety import objection


class ViolationError(AssertionError):
    """An invariant does not hold; the text begins with its number."""


def require(condition: bool, text: str) -> None:
    if not condition:
        raise ViolationError(text)


def check_tree(tree: Tree) -> None:
    """I1: no two nodes in one slot, no orphan, no cycle."""
    require(len({node.slot for node in tree.values()}) == len(tree), "I1 valid tree: two nodes in one slot")
    require(len(paths_of(tree)) == len(tree), "I1 valid tree: an orphan or a cycle")
    for node in tree.values():
        above = tree.get(node.parent)
        require(above is None or above.kind is Kind.DIRECTORY, "I1 valid tree: a child of a file")


def check_plan(
    base: BaseIndex,
    local: Identified,
    remote: Identified,
    plan: Plan,
    policy: Policy,
    rng: random.Random,
    *,
    meddled: bool = False,
) -> None:
    """What holds for every single plan: I1, I10, frozen nodes untouched; I9, I12 and I13 on a sample."""
    check_tree(plan.target)
    check_frozen(plan)
    check_holding(plan)
    if plan.local or plan.remote:
        check_safety_stop(plan)
        check_travelling(plan)
        check_united(base, local, remote, plan)
    check_identity(base, local, remote)
    if policy.fold_local is None and not meddled:  # users may put another file where a crash left half a rename
        check_clashes(local.tree, remote.tree, plan.target)
    check_adoption(plan)
    for actions, state in ((plan.local, plan.local_state), (plan.remote, plan.remote_state)):
        if actions:
            check_minimal(actions, state.tree, plan.target)
    if rng.random() < 0.06:
        check_pure(base.tree, local.tree, remote.tree, policy)
        if not local.frozen and not remote.frozen and not remote.implicit and policy.fold_local is None:
            check_symmetry(base.tree, local.tree, remote.tree, policy)


def check_identity(base: BaseIndex, local: Identified, remote: Identified) -> None:
    """I10: what kept its inode or uuid and left its old place is a move, so that nothing is sent."""
    for nid, row in base.rows.items():
        for state, tag in ((local, row.local), (remote, row.remote)):
            if tag is None or nid in state.tree or nid in state.frozen:
                continue
            identity = tag.inode if isinstance(tag, LocalTag) else tag.uuid
            for other, seen in state.tags.items():
                if other in base.rows or state.tree[other].kind is not row.node.kind:
                    continue
                same = (seen.inode if isinstance(seen, LocalTag) else seen.uuid) == identity
                require(not same, "I10 minimality: a moved node is taken for a deleted and a new one")


def check_clashes(local: Tree, remote: Tree, target: Tree) -> None:
    """I5: the server's name stays, and no conflict copy is made of equals."""
    copies = [(nid, node) for nid, node in target.items() if CONFLICT_MARK in node.name]
    if not copies or any(node.parent == PARK for tree in (local, remote) for node in tree.values()):
        return
    slots = {node.slot: node for node in target.values()}
    folders = {node.slot for node in remote.values() if node.kind is Kind.DIRECTORY}
    for nid, node in copies:
        here, there = local.get(nid), remote.get(nid)
        if any(known is not None and known.name == node.name for known in (here, there)):
            continue  # an older copy
        name = original_name(node.name)
        lost = there is not None and there.slot == (node.parent, name)
        shared = there is not None and there.kind is not Kind.DIRECTORY and there.slot in folders
        require(not lost or shared, "I5 intent: a node lost its name on the server")
        holder = slots.get((node.parent, name))
        require(holder is None or not holder.same_payload(node), "I10 minimality: a conflict between equals")


def original_name(name: bytes) -> bytes:
    """The name a conflict copy was made from."""
    stem, _, tail = name.rpartition(CONFLICT_MARK)
    return stem + tail.partition(b")")[2]


def check_adoption(plan: Plan) -> None:
    """I10: what one side has under another number is renumbered, not made again and deleted."""
    for actions in (plan.local, plan.remote):
        stand_ins = {action.absorbed_by for action in actions if isinstance(action, Trash)} - {None}
        if stand_ins:
            made = {action.nid for action in actions if isinstance(action, Mkdir | Create)}
            marked = plan.remote_state.implicit if actions is plan.remote else frozenset()
            require(not (made - marked) & stand_ins, "I10 minimality: made anew though an equal node was there")


def check_travelling(plan: Plan) -> None:
    """I5: no side is told of an attribute that is too large to travel: it would be an attribute without a value."""
    for action in (*plan.local, *plan.remote):
        if isinstance(action, Mkdir | Create | Update | SetMeta):
            told = action.meta.xattrs or ()
            require(all(value is not None for _, value in told), "I5 intent: what is too large to travel is told")


def check_united(base: BaseIndex, local: Identified, remote: Identified, plan: Plan) -> None:
    """I5: of two that become one at their first meeting, no attribute is lost."""
    renumbered = _renumbered(local.tree, plan.local_state.tree) | _renumbered(remote.tree, plan.remote_state.tree)
    if renumbered & base.rows.keys():
        return  # what was known before: a change on the other side may have removed some
    for nid in plan.target.keys() - base.rows.keys():
        here, there = plan.local_state.tree.get(nid), plan.remote_state.tree.get(nid)
        if here is None or there is None or not (here.meta.xattrs or there.meta.xattrs):
            continue
        mine, other, new = (dict(node.meta.xattrs or ()) for node in (here, there, plan.target[nid]))
        for name in mine.keys() | other.keys():
            given = {side[name] for side in (mine, other) if side.get(name) is not None}
            require(not given or new.get(name) in given, f"I5 intent: the attribute {name!r} is lost at a meeting")


def check_rule_a(row: BaseRow, local: object, remote: object) -> None:
    """I4: a base row never leads: both replicas really are equal in that node (StateDB rule A)."""
    if local != remote:  # the text costs more than the comparison
        raise ViolationError(f"I4 rule A: the row of {row.node.name!r} was written while {local} != {remote}")


def check_copies(names: Iterable[tuple[bytes, object]]) -> None:
    """I8: a resumed run finds the conflict copy that was made before the crash."""
    seen: set[object] = set()
    for path, payload in names:
        folder, _, name = path.rpartition(b"/")
        if CONFLICT_MARK in name:
            key = (folder, original_name(name), payload)
            require(key not in seen, f"I8 crash: a second conflict copy {path!r} of the same version")
            seen.add(key)


def check_frozen(plan: Plan) -> None:
    """Unknown nodes are not touched on either side, and nothing above them goes away or is changed.

    A directory above them that the other side lacks may be made there.
    """
    frozen = plan.local_state.frozen.keys() | plan.remote_state.frozen.keys()
    if not frozen:
        return
    untouchable = set(frozen)
    for state in (plan.local_state, plan.remote_state):
        for nid in frozen:
            node = state.tree.get(nid)
            while node is not None and node.parent not in (ROOT, PARK):
                untouchable.add(node.parent)
                node = state.tree.get(node.parent)
    for action in (*plan.local, *plan.remote):
        allowed = action.nid not in untouchable or (isinstance(action, Mkdir) and action.nid not in frozen)
        require(allowed, f"I5 frozen: {type(action).__name__} on a node that is not known")


_ORDER = {Mkdir: 0, Create: 0, Move: 0, Park: 0, Update: 1, SetMeta: 1, Trash: 2}


def check_minimal(actions: tuple[Action, ...], tree: Tree, target: Tree) -> None:
    """I10: at most one action of a kind per node, none without a difference, content only where it differs."""
    seen = {(type(action), action.nid) for action in actions}
    require(len(seen) == len(actions), "I10 minimality: one action twice on a node")
    for action in actions:
        before, after = tree.get(action.nid), target.get(action.nid)
        if isinstance(action, Update):
            differs = before is not None and after is not None and not before.same_payload(after)
            require(differs, "I10 minimality: content is sent though it is equal")
        elif isinstance(action, Move):
            parked = (Park, action.nid) in seen
            differs = before is not None and after is not None and before.slot != after.slot
            require(differs or parked, "I10 minimality: a node is moved to where it is")


def check_intent(base: Tree, local: Tree, remote: Tree, plan: Plan) -> None:
    """I5: what one side changed and the other did not is in the target, unless a note says why not."""
    notes = {note.kind for note in plan.notes}
    acted_on = {action.nid for action in (*plan.local, *plan.remote)}
    back = {
        Side.LOCAL: _renumbered(local, plan.local_state.tree),
        Side.REMOTE: _renumbered(remote, plan.remote_state.tree),
    }
    for nid, was in base.items():
        here, there, then = local.get(nid), remote.get(nid), plan.target.get(nid)
        if here is None and there is None:
            continue
        if here is None or there is None:
            tree, other = (local, remote) if there is None else (remote, local)
            rescued = _in_a_moved_directory(nid, base, tree, other)
            require(rescued or nid not in plan.untrack, "I5 intent: a row is dropped that should be kept")
            renumbered = nid in back[Side.LOCAL] or nid in back[Side.REMOTE]
            _check_deletion(was, here or there, then, renumbered, notes, rescued)
            continue
        if then is None:
            require(nid in back[Side.LOCAL] or _twin(plan.target, here, there), "I5 intent: a kept node is missing")
            continue
        _check_fields(was, here, there, then)
        # What waits for a name that can't be held stays where each side has it: no place is lost, whatever the target.
        if NoteKind.UNHOLDABLE not in notes or nid in acted_on:
            _check_place(was, here, there, then, plan.target, notes)


def _renumbered(before: Tree, after: Tree) -> set[Nid]:
    return before.keys() - after.keys()


def _twin(target: Tree, *nodes: Node) -> bool:
    """Something of equal payload stands for it (absorbed)."""
    return any(other.same_payload(node) for node in nodes for other in target.values())


def _in_a_moved_directory(nid: Nid, base: Tree, tree: Tree, other: Tree) -> bool:
    """True if a directory above was moved on this side and deleted on the other one: it comes back with its content."""
    at = tree[nid].parent
    while at in tree and at not in other:
        if at in base and tree[at].slot != base[at].slot:
            return True
        at = tree[at].parent
    return False


def _check_deletion(
    was: Node, kept: Node | None, then: Node | None, renumbered: bool, notes: set[NoteKind], rescued: bool
) -> None:
    assert kept is not None
    untouched = kept.slot == was.slot and kept.same_payload(was)
    if rescued:
        require(then is not None or renumbered, "I5 intent: a moved directory comes back without its content")
    elif untouched and then is not None:
        saved = was.kind is Kind.DIRECTORY and NoteKind.KEPT in notes
        require(saved, "I5 intent: a deletion was undone")
    if not untouched and was.kind is not Kind.DIRECTORY:
        require(then is not None or renumbered, "I5 intent: an edited or moved node was deleted")


def _check_fields(was: Node, here: Node, there: Node, then: Node) -> None:
    ours, theirs = not here.same_payload(was), not there.same_payload(was)
    if theirs:
        require(then.same_payload(there), "I5 intent: a remote edit was reverted")
    elif ours:
        require(then.same_payload(here), "I5 intent: a local edit was reverted")
    for name in ("mode", "mtime_ns"):
        old, mine, other, new = (getattr(node.meta, name) for node in (was, here, there, then))
        wanted = other if other not in (old, None) else mine
        require(new == wanted, f"I5 intent: a change of {name} was reverted")
    if any(node.meta.xattrs for node in (was, here, there, then)):
        _check_marks(was, here, there, then)


def _check_marks(was: Node, here: Node, there: Node, then: Node) -> None:
    """One by one: what the server's side changed counts, else what is here. Too large to travel: as it was."""
    old, mine, new = (dict(node.meta.xattrs or ()) for node in (was, here, then))
    other = old if there.meta.xattrs is None else dict(there.meta.xattrs)
    for name in old.keys() | mine.keys() | other.keys() | new.keys():
        own = old.get(name) if name in mine and mine[name] is None else mine.get(name)
        wanted = other.get(name) if other.get(name) != old.get(name) else own
        require(new.get(name) == wanted, f"I5 intent: a change of the attribute {name!r} was reverted")


def _check_place(was: Node, here: Node, there: Node, then: Node, target: Tree, notes: set[NoteKind]) -> None:
    wanted = there if there.slot != was.slot else here
    if wanted.slot == was.slot and wanted.parent != then.parent and NoteKind.CYCLE in notes:
        return
    if wanted.parent != ROOT and wanted.parent not in target:
        return  # its directory became one with another
    if wanted is here and NoteKind.CYCLE in notes:
        return  # the server's places count
    if CONFLICT_MARK in then.name:
        require(wanted.parent == then.parent, "I5 intent: a renamed loser changed its directory")
        return
    require(then.slot == wanted.slot, "I5 intent: a move was reverted")


def check_ignored(before: Iterable[tuple[int, object]], after: Iterable[tuple[int, object]]) -> None:
    """I5: what is ignored is as it was, on both sides, whatever a cycle did."""
    lost = set(before) - set(after)
    require(not lost, f"I5 ignored: {lost} was touched")


def check_safety_stop(plan: Plan) -> None:
    """I11: the guard is told of every deletion, and stops whatever leaves a side empty."""
    for actions, state, told in zip(
        (plan.local, plan.remote), (plan.local_state, plan.remote_state), plan.deletions, strict=True
    ):
        deleted = [action for action in actions if isinstance(action, Trash) and action.absorbed_by is None]
        require(told.deleted == len(deleted), "I11 guard: it is not told of a deletion")
        if deleted and {action.nid for action in deleted} == state.tree.keys() and told.nodes_after == 0:
            require(objection(told) is not None, "I11 guard: a side may be emptied")


def check_holding(plan: Plan) -> None:
    """I5: a directory with something in it that is not synced is not to be removed."""
    for action in plan.local:
        held = isinstance(action, Trash) and action.absorbed_by is None and action.nid in plan.local_state.holding
        require(not held, "I5 ignored: a directory that holds something is to be deleted")


def check_blind(plan: Plan) -> None:
    """I5: no deletion is derived from a look that was not complete."""
    for action in plan.remote:
        derived = isinstance(action, Trash) and action.absorbed_by is None
        require(not derived, "I5 unknown: a deletion without positive evidence")


def check_union(plan: Plan) -> None:
    """A lost base deletes nothing."""
    for action in (*plan.local, *plan.remote):
        if isinstance(action, Trash):
            require(action.absorbed_by is not None, "I5 intent: a deletion without a base")


def check_pure(base: Tree, local: Tree, remote: Tree, policy: Policy) -> None:
    """I12: merge changes nothing that it is given, and says the same again (I9)."""
    before = (dict(base), dict(local), dict(remote))
    first = merge_module.merge(base, local, remote, policy, _counter())
    second = merge_module.merge(base, local, remote, policy, _counter())
    require(first == second, "I9 determinism: merge answers differently")
    require(before == (dict(base), dict(local), dict(remote)), "I12 purity: merge changed its input")


def check_symmetry(base: Tree, local: Tree, remote: Tree, policy: Policy) -> None:
    """I13: with the sides swapped the same versions survive; only names and priority differ."""
    one = merge_module.merge(base, local, remote, policy, _counter()).target
    two = merge_module.merge(base, remote, local, policy, _counter()).target
    require(_payloads(one) == _payloads(two), "I13 symmetry: other payloads survive when the sides are swapped")


def _payloads(tree: Tree) -> set[object]:
    # Without directories: which of them survive depends on whose place for a child counts, so on the priority.
    return {(node.kind, node.content, node.target) for node in tree.values() if node.kind is not Kind.DIRECTORY}


def _counter() -> object:
    numbers = count(1_000_000)
    return lambda: Nid(next(numbers))


def check_convergence(local: object, remote: object) -> None:
    """I3: at rest both sides are equal."""
    if local != remote:
        raise ViolationError(f"I3 convergence: {local} != {remote}")


def check_no_loss(must: set[int], have: set[int]) -> None:
    """I4: every version a user wrote and no user replaced is there."""
    if not must <= have:
        raise ViolationError(f"I4 no loss: lost {sorted(must - have)}")


def check_base(base: BaseIndex, local: Identified, remote: Identified) -> None:
    """I3: at rest the base is what both sides are."""
    for text, side in (("local", local), ("remote", remote)):
        tree = dict(side.tree)
        require(dict(base.tree) == tree or _without_marks(base.tree) == _without_marks(tree),
                f"I3 convergence: base and {text} differ")  # fmt: skip


def _without_marks(tree: Mapping[Nid, Node]) -> dict[Nid, Node]:
    """A side may know of attributes that do not travel, or tell nothing of any: `scenario.check_marks` sees to them."""
    return {nid: replace(node, meta=replace(node.meta, xattrs=None)) for nid, node in tree.items()}


def check_idempotence(base: BaseIndex, plan: Plan) -> None:
    """I6, I7: a cycle at rest does nothing, writes nothing, and takes none of our own changes for somebody's."""
    require(plan.is_empty, "I6 idempotence: a second cycle acts")
    # What the plan would adopt below a directory without a row is not written either: it waits for that row.
    require(not Outcome(base, plan).adoptions(), "I7 no echo: a second cycle writes base rows")
