"""Named mutants of the planner. Each is a plausible mistake; the simulation must notice every one.

Convergence, no-loss and idempotence are not enough to trust the simulation: a planner that reverts every remote
rename passes them all. So the planner's source is changed in memory, one place at a time, and some seed must object.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
from types import ModuleType

import msgspec

from tests import effort
from tests.simulation import engine_scenario, scenario
from tests.simulation.killers import KILLERS
from tests.simulation.named import NAMED

BUDGETS = {ring: effort.count(f"planner mutants, {ring}") for ring in ("R0", "R2")}
"""Seeds per mutant and ring. The hardest ones to kill need most of it; the rarest begin where a seed is known."""

_ORDER = (  # importers after what they import
    "core.xattrs",
    "core.conflict",
    "core.planner.identify",
    "core.planner.merge",
    "core.planner.hold_back",
    "core.planner.diff",
    "core.planner.outcome",
    "core.planner.safety",
    "core.planner.plan",
    "core.partial.affected",
    "engine.schedule",
    "engine.record",
    "engine.partial.partial_look",
    "engine.pull",
    "engine.isolation",
    "engine.push",
    "engine.cycle",
)


_WATCHED = frozenset({"affected"})  # pure, but at work only in cycles that look at a part


class Mutant(msgspec.Struct, frozen=True):
    """One change of one module's source. `old` must occur in it exactly once.

    Attributes:
        in_parts: It matters only to cycles that look at a part, or with the engine's faults.
        first: Where its seeds begin.
    """

    name: str
    module: str
    old: str
    new: str
    in_parts: bool = False
    first: int = 0

    @property
    def ring(self) -> str:
        """Who kills it: the planner alone, or the engine with its faults."""
        return "R2" if self.place.startswith("engine.") or self.module in _WATCHED or self.in_parts else "R0"

    @property
    def place(self) -> str:
        """Its module's name below `syncer`."""
        (found,) = (each for each in _ORDER if each.rpartition(".")[2] == self.module)
        return found


MUTANTS = (
    # --- identify
    Mutant("inode-is-ignored", "identify", "return base.by_inode.get(stat.tag.inode, ())", "return ()"),
    Mutant("uuid-is-ignored", "identify", "return base.by_uuid.get(stat.tag.uuid, ())", "return ()"),
    Mutant(
        "kind-is-ignored",
        "identify",
        "if nid not in self.taken and rows[nid].node.kind is kind]",
        "if nid not in self.taken]",
    ),
    Mutant(
        "unknown-is-absent",
        "identify",
        "        self._keep_unknown(unknown, tree)\n",
        "",
    ),
    Mutant("unstable-is-not-frozen", "identify", "            self.frozen[nid] = UNSTABLE\n", ""),
    Mutant("one-node-twice", "identify", "        self.taken.add(nid)\n\n    def _candidates", "\n    def _candidates"),
    # --- merge: the table
    Mutant(
        "local-rename-wins",
        "merge",
        "        return remote.slot\n\n    # --- conflict",
        "        return local.slot\n\n    # --- conflict",
    ),
    Mutant(
        "remote-rename-is-ignored",
        "merge",
        "        return remote.slot\n\n    # --- conflict",
        "        return base.slot if base is not None else remote.slot\n\n    # --- conflict",
    ),
    Mutant("local-rename-is-ignored", "merge", "            return local.slot\n", "            return base.slot\n"),
    Mutant(
        "delete-beats-edit",
        "merge",
        "        if survivor.slot == base.slot and survivor.same_payload(base):\n",
        "        if survivor.slot == base.slot:\n",
    ),
    Mutant(
        "delete-beats-move",
        "merge",
        "        if survivor.slot == base.slot and survivor.same_payload(base):\n",
        "        if survivor.same_payload(base):\n",
    ),
    Mutant(
        "nothing-is-deleted",
        "merge",
        "            if nid not in self.holding:\n                return None\n",
        "",
    ),
    Mutant("no-conflict-copy", "merge", "                self.lost.append((nid, local))\n", "                pass\n"),
    Mutant(
        "local-content-always-wins",
        "merge",
        "            if base is not None and remote.same_payload(base):\n",
        "            if base is not None:\n",
    ),
    Mutant(
        "remote-content-always-wins",
        "merge",
        "                winner = local\n",
        "                pass\n",
    ),
    Mutant(
        "remote-meta-is-ignored", "merge", "    if remote is not None and remote != base:\n        return remote\n", ""
    ),
    Mutant(
        "local-meta-is-ignored",
        "merge",
        "    return local if local is not None else base if base is not None else remote\n",
        "    return base if base is not None else remote\n",
    ),
    Mutant(
        "parked-is-moved",
        "merge",
        "    parked = [nid for nid, node in side.items() if node.parent == PARK]\n",
        "    parked = []\n",
    ),
    # --- merge: the fixpoint
    Mutant("no-closure", "merge", "self._close() | self._break_cycles()", "self._break_cycles()"),
    Mutant("no-cycle-check", "merge", "self._break_cycles() | self._settle_clashes()", "self._settle_clashes()"),
    Mutant("no-clash-check", "merge", " | self._settle_clashes()", ""),
    Mutant(
        "cycles-keep-the-local-places",
        "merge",
        "            if slot != self.target[nid].slot:\n",
        "            if False:\n",
    ),
    Mutant(
        "a-clash-drops-the-loser",
        "merge",
        "        elif first.same_payload(second):\n            if self",
        "        elif first.kind is second.kind:\n            if self",
    ),
    Mutant(
        "equal-files-clash",
        "merge",
        "        elif first.same_payload(second):\n",
        "        elif first.same_payload(second) and first.kind is Kind.DIRECTORY:\n",
    ),
    Mutant(
        "local-keeps-the-name",
        "merge",
        "            winner, *losers = sorted(",
        "            *losers, winner = sorted(",
    ),
    Mutant("no-relabelling", "merge", "                names[nid] = winner\n", "                pass\n"),
    Mutant(
        "a-second-copy-after-a-crash",
        "merge",
        "            if beside and node is not None and is_copy_of(node.name, loser):\n",
        "            if False:\n",
    ),
    # --- freeze
    Mutant(
        "ancestors-are-not-frozen",
        "hold_back",
        "self._only_there([nid]) else [kept.parent]",
        "self._only_there([nid]) else []",
    ),
    Mutant(
        "slots-of-the-frozen-are-taken",
        "hold_back",
        "[*above, *(each for each in takers[side].get(self._key(side, kept), ()) if each != nid)]",
        "above",
    ),
    # --- diff
    Mutant("no-parking", "diff", "        if occupant is None or occupant == nid:\n", "        if True:\n"),
    Mutant("trash-from-the-top", "diff", "key=lambda item: (-item[0], item[1])", "key=lambda item: (item[0], item[1])"),
    Mutant(
        "updates-before-copies",
        "diff",
        "(*self.places, *self.updates, *trash, ",
        "(*self.updates, *self.places, *trash, ",
    ),
    Mutant(
        "trash-before-all",
        "diff",
        "return (*self.places, *self.updates, *trash,",
        "return (*trash, *self.places, *self.updates,",
    ),
    Mutant(
        "no-marker-is-made",
        "diff",
        "        if nid in self.state.implicit and want.parent != PARK:\n",
        "        if False:\n",
    ),
    Mutant(
        "meta-is-never-set",
        "diff",
        "            if meta is not None:\n                actions",
        "            if False:\n                actions",
    ),
    # --- outcome
    Mutant(
        "a-row-before-both-agree",
        "outcome",
        "                if node is None:\n                    continue\n",
        "                node = node or there\n",
    ),
    Mutant(
        "rows-are-never-removed",
        "outcome",
        "                    yield Forgotten(nid=nid)\n",
        "                    pass\n",
    ),
    Mutant(
        "evidence-is-not-renewed",
        "outcome",
        "            self.tags[nid] = evidence(node.kind, tag)\n\n    def _put",
        "            pass\n\n    def _put",
    ),
    Mutant(
        "meta-counts-as-agreed",
        "outcome",
        "        if theirs is not None and ours != theirs:\n            return None\n",
        "",
    ),
    # --- what was added since: rescue, holding, folding
    Mutant(
        "moved-directories-come-back-empty",
        "merge",
        "                if nid not in self.target:\n",
        "                if False:\n",
    ),
    Mutant(
        "what-holds-others-is-deleted", "merge", "            if nid not in self.holding:\n", "            if True:\n"
    ),
    Mutant("deleted-while-blind", "identify", "        if unknown - sealed:\n", "        if False:\n"),
    Mutant(
        "folded-names-are-two",
        "hold_back",
        "    return found + _folded(target, local, policy.fold_local)\n",
        "    return found\n",
    ),
    Mutant(
        "case-only-renames-go-straight",
        "diff",
        "                if self.fold is not None and self._key(have) == self._key(want):\n",
        "                if False:\n",
    ),
    Mutant("a-local-twin-takes-a-folded-name", "merge", " | self._settle_folds()", ""),
    # --- extended attributes
    Mutant(
        "attributes-are-merged-as-one",
        "xattrs",
        "        value = there if there != was.get(name) else here\n",
        "        value = there if theirs != was else here\n",
    ),
    Mutant(
        "too-large-is-removed",
        "xattrs",
        "        here = was.get(name) if name in ours and ours[name] is None else ours.get(name)\n",
        "        here = ours.get(name)\n",
    ),
    Mutant(
        "no-opinion-is-an-empty-set",
        "outcome",
        "        told = (known.xattrs or ()) if there.xattrs is None else there.xattrs\n",
        "        told = there.xattrs or ()\n",
    ),
    Mutant(
        "attributes-count-as-agreed",
        "outcome",
        "        if not xattrs.same(here.xattrs, told):\n            return None\n",
        "",
    ),
    Mutant(
        "a-row-before-attributes-are-set",
        "outcome",
        "        waits = nid in self._to_mark or nid in self._to_tell\n",
        "        waits = nid in self._to_tell\n",
    ),
    Mutant(
        "of-two-that-become-one-the-attributes-of-one-count",
        "merge",
        ", xattrs=xattrs.united(meta.xattrs, node.meta.xattrs, was))",
        ")",
    ),
    # --- the engine: order of apply and StateDB
    Mutant(
        "rows-before-names-are-durable",
        "record",
        "        await self._local.barrier()\n        await self._commit()\n",
        "        await self._commit()\n",
    ),
    Mutant(
        "rows-before-the-commit",
        "record",
        "        await self._commit()\n        if group or told:\n",
        "        if group:\n            await trio.to_thread.run_sync(self._state.record, group)\n"
        "        await self._commit()\n        if group or told:\n",
    ),
    Mutant(
        "last-rows-are-lost",
        "cycle",
        "            await recorder.flush()\n            self._versions",
        "            pass\n            self._versions",
    ),
    Mutant(
        "old-evidence-is-booked-here",
        "pull",
        "self._outcome.applied(action, applied.tag, applied.meta)",
        "self._outcome.applied(action, action.expected)",
    ),
    Mutant(
        "old-evidence-is-booked-there",
        "push",
        "return self._outcome.applied(action, stored.tag)",
        "return self._outcome.applied(action, action.expected)",
    ),
    Mutant(
        "a-failed-action-is-no-obstacle",
        "isolation",
        "        self._outcome.failed(action)\n        self._failed(action, _reason(error), code_of_one(error))\n",
        "        self._outcome.applied(action, None)\n"
        "        self._failed(action, _reason(error), code_of_one(error))\n",
    ),
    Mutant(
        "obstacles-are-not-asked-for",
        "isolation",
        "        obstacle = self._outcome.obstacle(action)\n",
        "        obstacle = None\n",
    ),
    Mutant(
        "nothing-waits-for-directories", "schedule", "            nids.append(action.parent)\n", "            pass\n"
    ),
    Mutant(
        "updates-do-not-wait-for-copies", "schedule", "            nids.append(action.after)\n", "            pass\n"
    ),
    Mutant(
        "directories-go-with-what-is-in-them",
        "schedule",
        "max((rank[need] + 1 for need in needs[at] if need in rank), default=0)",
        "0",
    ),
    Mutant("moves-are-no-barriers", "schedule", "    return isinstance(action, Move | Park)\n", "    return False\n"),
    Mutant(
        "directories-go-first", "schedule", "        return action.kind is Kind.DIRECTORY\n", "        return False\n"
    ),
    Mutant(
        "evidence-is-taken-anew-on-the-server",
        "push",
        "                expect = remote_tag(self._outcome, action.nid)\n                return self._store(",
        "                expect = getattr(await self._remote.secret(path, 0), 'tag', None)\n"
        "                return self._store(",
    ),
    Mutant(
        "moved-along-is-not-booked",
        "push",
        "            changes += self._outcome.retagged(Side.REMOTE, nid, moved)\n",
        "            pass\n",
    ),
    # --- cycles that look at a part
    Mutant(
        "unknown-deleted-names-are-ignored",
        "affected",
        "            self._require_places(written, since)\n",
        "            pass\n",
        first=37_000,
    ),
    Mutant(
        "what-is-gone-in-a-part-takes-nothing-along",
        "affected",
        "        self._opened.add(row.nid)\n        self._subtree(row)\n",
        "        self._opened.add(row.nid)\n",
    ),
    Mutant(
        "what-leaves-a-moved-directory-moves-as-a-whole",
        "affected",
        "        moved -= self._complete.keys()\n",
        "",
        first=101_500,
    ),
    Mutant(
        "deletions-on-the-server-are-not-told",
        "affected",
        "                self._deleted.add(path)\n",
        "                pass\n",
    ),
    Mutant(
        "the-cursor-of-a-failed-cycle-counts",
        "cycle",
        "            if not undone and position != self._state.cursor():\n",
        "            if position != self._state.cursor():\n",
    ),
    Mutant(
        "rows-lose-the-directory-above",
        "outcome",
        "                if nid in self._base and not self._keeps(nid):\n",
        "                if nid in self._base:\n",
        in_parts=True,
        first=6_700,
    ),
)


def _execute(module: ModuleType, source: str) -> None:
    """Others, who raise, catch or compare them, have the module's errors and values: these stay."""
    kept = {
        name: each
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, Exception | msgspec.Struct)
    }
    exec(compile(source, module.__file__ or module.__name__, "exec"), module.__dict__)
    vars(module).update(kept)


def _modules_from(name: str) -> list[ModuleType]:
    return [importlib.import_module(f"syncer.{each}") for each in _ORDER[_ORDER.index(name) :]]


def apply(mutant: Mutant) -> None:
    """Change the planner of this process. Raises LookupError if the pattern does not apply any more."""
    modules = _modules_from(mutant.place)
    sources = [inspect.getsource(module) for module in modules]
    if sources[0].count(mutant.old) != 1:
        raise LookupError(f"{mutant.name}: its pattern occurs {sources[0].count(mutant.old)} times in {mutant.module}")
    sources[0] = sources[0].replace(mutant.old, mutant.new)
    for module, source in zip(modules, sources, strict=True):
        _execute(module, source)


def restore() -> None:
    """The real planner again."""
    for module in _modules_from(_ORDER[0]):
        _execute(module, inspect.getsource(module))


def kill(mutant: Mutant) -> tuple[int, str] | None:
    """The first seed that objects, and how; None if the mutant survives.

    It begins with a seed that has killed it before, if that took long: what it shows is that something objects. Should
    seeds mean other histories since, all others are tried. The soak looks for itself.
    """
    seeds = range(mutant.first, mutant.first + BUDGETS[mutant.ring])
    known = range(0)
    if effort.chosen() is not effort.Effort.SOAK and mutant.name in KILLERS:
        known = range(KILLERS[mutant.name], KILLERS[mutant.name] + 1)
    failures = scenario.failures if mutant.ring == "R0" else engine_scenario.failures
    apply(mutant)
    try:
        found = itertools.chain(failures(known), failures(seeds))
        return next(((seed, failure) for seed, failure in found if failure is not None), None)
    finally:
        restore()


def table() -> str:
    """The page docs/design/mutants.md: who kills what."""
    lines = [
        "# Mutants",
        "",
        "Plausible mistakes in the planner and the engine, each applied to the source in memory by",
        "`tests/simulation/mutants.py`. `make test` (`tests/simulation/test_mutants.py`) fails if no seed does",
        "object: a rule whose mutant survives is not tested. R0: the planner, random histories. R2: the real",
        "engine in memory, with faults. Written by `python -m tests.simulation table`; a test compares.",
        "",
        "| mutant | module | killed by |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {each.name} | `syncer/{each.place.replace('.', '/')}.py` | {each.ring} |" for each in MUTANTS]
    lines += [
        "",
        "What a ring finds only by luck has a test by name (`tests/simulation/named.py`; below `tests/unit/syncer/`).",
        "The module is changed while it is imported, and the test must fail.",
        "",
        "| mutant | module | killed by |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {each.name} | `syncer/{each.path}` | `{each.where}` |" for each in NAMED]
    return "\n".join(lines) + "\n"


def main(first: int, step: int) -> None:
    """Kill every `step`th mutant from `first` on; one line each."""
    for mutant in MUTANTS[first::step]:
        try:
            found = kill(mutant)
        except LookupError as error:
            print(f"inapplicable {error}")
        else:
            print(
                f"killed {mutant.name} by {mutant.ring} seed {found[0]}: {found[1][:90]}"
                if found
                else f"survived {mutant.name}"
            )
        sys.stdout.flush()
