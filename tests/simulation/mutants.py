"""Named mutants of the planner. Each is a plausible mistake; the simulation must notice every one.

Convergence, no-loss and idempotence are not enough to trust the simulation: a planner that reverts every remote
rename passes them all. So the planner's source is changed in memory, one place at a time, and some seed must object.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import dataclass
from types import ModuleType

from tests.simulation.scenario import failure_of

BUDGET = 12_000
"""Seeds per mutant. The hardest one to kill needs about a quarter of it."""

_ORDER = ("conflict", "identify", "merge", "freeze", "diff", "ledger", "plan")  # importers after what they import


@dataclass(frozen=True)
class Mutant:
    """One change of one module's source. `old` must occur in it exactly once."""

    name: str
    module: str
    old: str
    new: str


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
        "        if survivor.slot == base.slot and survivor.same_payload(base):\n            return None\n",
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
        "        elif first.same_payload(second):\n            self._absorb(loser, winner)\n",
        "        elif first.kind is second.kind:\n            self._absorb(loser, winner)\n",
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
        "freeze",
        "[kept.parent] if taker == nid else [kept.parent, taker]",
        "[] if taker == nid else [taker]",
    ),
    Mutant(
        "slots-of-the-frozen-are-taken",
        "freeze",
        "[kept.parent] if taker == nid else [kept.parent, taker]",
        "[kept.parent]",
    ),
    # --- diff
    Mutant("no-parking", "diff", "        if occupant is None or occupant == nid:\n", "        if True:\n"),
    Mutant("trash-from-the-top", "diff", "key=lambda item: (-item[0], item[1])", "key=lambda item: (item[0], item[1])"),
    Mutant(
        "updates-before-copies",
        "diff",
        "(*self.places, *self.updates, *self._trash()",
        "(*self.updates, *self.places, *self._trash()",
    ),
    Mutant(
        "trash-before-all",
        "diff",
        "return (*self.places, *self.updates, *self._trash(),",
        "return (*self._trash(), *self.places, *self.updates,",
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
    # --- ledger
    Mutant(
        "a-row-before-both-agree",
        "ledger",
        "                if node is None:\n                    continue\n",
        "                node = node or there\n",
    ),
    Mutant(
        "rows-are-never-removed",
        "ledger",
        "                    yield Forgotten(nid=nid)\n",
        "                    pass\n",
    ),
    Mutant(
        "evidence-is-not-renewed",
        "ledger",
        "            self.tags[nid] = evidence(node.kind, tag)\n\n    def _put",
        "            pass\n\n    def _put",
    ),
    Mutant(
        "meta-counts-as-agreed",
        "ledger",
        "        if ours is not None and theirs is not None and ours != theirs:\n            return None\n",
        "",
    ),
)


def _execute(module: ModuleType, source: str) -> None:
    exec(compile(source, module.__file__ or module.__name__, "exec"), module.__dict__)


def _modules_from(name: str) -> list[ModuleType]:
    return [importlib.import_module(f"syncer.core.{each}") for each in _ORDER[_ORDER.index(name) :]]


def apply(mutant: Mutant) -> None:
    """Change the planner of this process. Raises LookupError if the pattern does not apply any more."""
    modules = _modules_from(mutant.module)
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
    """The first seed that objects, and how; None if the mutant survives."""
    apply(mutant)
    try:
        for seed in range(BUDGET):
            failure = failure_of(seed)
            if failure is not None:
                return seed, failure
        return None
    finally:
        restore()


def main(first: int, step: int) -> None:
    """Kill every `step`th mutant from `first` on; one line each."""
    for mutant in MUTANTS[first::step]:
        try:
            found = kill(mutant)
        except LookupError as error:
            print(f"inapplicable {error}")
        else:
            print(f"killed {mutant.name} by seed {found[0]}: {found[1][:90]}" if found else f"survived {mutant.name}")
        sys.stdout.flush()
