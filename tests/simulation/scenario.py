"""One scenario from one seed: users on both sides, cycles with crashes and interference, until all is quiet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.folding import Folding
from syncer.core.ignore import IgnoreRules
from syncer.core.model import (
    Action,
    BaseRow,
    Create,
    Identified,
    Kind,
    Meta,
    Mkdir,
    Move,
    Nid,
    Node,
    Park,
    Plan,
    RelPath,
    SetMeta,
    Side,
    Trash,
    Update,
    meta_of,
)
from syncer.core.paths import ancestors, remote_objection, split
from syncer.core.planner import identify as identify_module
from syncer.core.planner import outcome as outcome_module
from syncer.core.planner import plan as plan_module
from syncer.core.planner.merge import Policy
from syncer.remote.serials import SERIALS
from tests.simulation import invariants
from tests.simulation.invariants import require
from tests.simulation.neighbours import Neighbours
from tests.simulation.world import (
    DIRECTORY,
    FILE,
    NAMES,
    SYMLINK,
    ActionRefusedError,
    Contents,
    Entry,
    Marks,
    Replica,
    Users,
    agree,
    written,
)

NOTHING_IGNORED, IGNORING = IgnoreRules(), IgnoreRules([b"b"])
FOLD = Folding(case=True).key
PARTING = 10  # the cycle from which on users rename what can't be held on both sides
MAX_CYCLES = 60
OBJECTS = 1 << 20  # identities that the engine makes are above those of users
HISTORIES = 4  # seeds in a row share their trees and first plan: how it is carried out, and what comes then, differs
MARKING = 12  # of so many families one syncs extended attributes
CROWDED = 10  # of so many families one has users who get in each other's way
_HISTORY = 1 << 40  # keeps the random numbers of histories apart from those of trees


class Limits(msgspec.Struct):
    """How rough a scenario is. Lower limits are tried to shrink a failure."""

    base_steps: int = 6
    side_steps: int = 4
    crashes: bool = True
    interference: bool = True
    unknown: bool = True
    lost_base: bool = True
    ignoring: bool = True
    folding: bool = True
    marking: bool = True
    large_marks: bool = True
    crowded: bool = True


class Planned(msgspec.Struct, frozen=True):
    """What a cycle has decided, and what it could not see."""

    number: int
    base: BaseIndex
    local: Identified
    remote: Identified
    plan: Plan
    blind: bool
    refusing: bool
    clashing: bool


@dataclass
class Scenario:
    """State of one run: two trees and a first plan (`begin`), then a history of them (`go_on`)."""

    seed: int
    limits: Limits = field(default_factory=Limits)
    choices: random.Random | None = None
    actions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = self.choices or random.Random(self.seed // HISTORIES)
        # A number is drawn only where no seed says it: other scenarios stay what they are.
        family = self.seed // HISTORIES if self.choices is None else self.rng.randrange(CROWDED)
        self.crowded = self.limits.crowded and family % CROWDED == 3
        self.users = (Neighbours if self.crowded else Users)(self.rng, self.actions)
        self.local, self.remote = Replica(Side.LOCAL), Replica(Side.REMOTE)
        self.rows: dict[Nid, BaseRow] = {}
        self.next_nid = 1
        self.made = OBJECTS
        self.base_lost = False
        self.refusing = self.rng.random() < 0.04  # the server does not take some name, for a while
        # Some names are ignored for some cycles, then not any more.
        self.ignoring = range(0)
        if self.limits.ignoring and self.rng.random() < 0.06:
            start = self.rng.randrange(3)
            self.ignoring = range(start, start + 1 + self.rng.randrange(3))
        # The local filesystem takes names for one that the server tells apart.
        self.fold = FOLD if self.limits.folding and self.rng.random() < 0.06 else None
        self.local.fold = self.fold
        # A number is drawn only where no seed says it: other scenarios stay what they are. What is smallest marks none.
        picked = self.seed // HISTORIES % MARKING == 5 if self.choices is None else self.rng.random() > 1 - 1 / MARKING
        self.users.marking, self.users.large = self.limits.marking and picked, self.limits.large_marks
        if self.fold is not None:
            self.users.names = (*NAMES, b"A", b"B")
        self.rules = NOTHING_IGNORED
        self.untracked: tuple[Nid, ...] = ()
        self.settled = False  # the last cycle did all it wanted, so the next one must find nothing
        self.smooth = True
        self.blinded = self.meddled = self.crashed = self.rules_changed = False
        self.trashed: set[int] = set()  # versions that the engine took away; they are in a trash, or on the server
        self.rest: tuple[BaseIndex, Identified, Identified] | None = None
        self.clean = True  # no crash, no interference, no blind spot so far

    # --- setting up

    def fresh(self) -> Nid:
        self.next_nid += 1
        return Nid(self.next_nid)

    def prepare(self) -> None:
        """A common tree, known to the base; then both sides change."""
        rng = self.rng
        for _ in range(rng.randrange(self.limits.base_steps + 1)):
            self.users.act(self.local)
        for path in sorted(self.local.entries):
            entry = self.local.entries[path]
            self.remote.entries[path] = Entry(
                entry.identity, entry.kind, entry.payload, entry.mode, entry.mtime, self.remote.tick(), _told(entry)
            )
        self._write_base()
        if 1 in self.local.contents():
            self.users.copies_count = False
        if rng.random() < 0.05:
            self.users.cross(self.local, self.remote)
        if isinstance(self.users, Neighbours):
            here = rng.random() < 0.5
            self.users.twist(*((self.local, self.remote) if here else (self.remote, self.local)))
        for replica in (self.local, self.remote):
            for _ in range(rng.randrange(self.limits.side_steps + 1)):
                self.users.act(replica)
        for _ in range(4):  # without a difference there is nothing to plan
            if self.local.state() != self.remote.state():
                break
            self.users.act(rng.choice((self.local, self.remote)))
        if self.limits.lost_base and rng.random() < 0.05:
            self.rows, self.base_lost = {}, True
            self.actions.append("the base is lost")

    def story(self) -> list[str]:
        """What was done, in order."""
        return self.actions

    def _write_base(self) -> None:
        numbers: dict[bytes, Nid] = {b"": Nid(0)}
        for path in sorted(self.local.entries):
            entry = self.local.entries[path]
            parent, _, name = path.rpartition(b"/")
            nid = numbers[path] = self.fresh()
            meta = meta_of(entry.mode, mtime_ns=entry.mtime, xattrs=_told(entry))
            node = Node(
                parent=numbers[parent],
                name=name,
                kind=entry.kind,
                content=Contents.of(entry.payload) if entry.kind is FILE else None,
                target=b"%d" % entry.payload if entry.kind is SYMLINK else None,
                meta=identify_module.synced_meta(entry.kind, meta),
            )
            here, there = self.local.tag(path), self.remote.tag(path)
            assert here is not None
            assert there is not None
            self.rows[nid] = BaseRow(
                nid=nid,
                node=node,
                local=identify_module.evidence(entry.kind, here),  # type: ignore[arg-type] # a local tag stays one
                remote=there,  # type: ignore[arg-type] # a remote replica's tag
            )

    # --- cycles

    def run(self) -> None:
        """Cycle until nothing is left to do, then check what must hold at rest."""
        self.begin()
        self.go_on()

    def begin(self) -> None:
        """The trees, and the first plan: the same for `HISTORIES` seeds in a row."""
        self.prepare()
        self.first = self._plan(0, quiet=False)

    def twin(self, seed: int) -> Scenario:
        """Another history of what has begun here; as if it had been run from the beginning."""
        other = copy(self)
        other.seed, other.actions, other.rows = seed, list(self.actions), dict(self.rows)
        other.users = self.users.copy(other.actions)
        other.local, other.remote = self.local.copy(), self.remote.copy()
        other.trashed = set(self.trashed)
        return other

    def go_on(self) -> None:
        """Carry out the first plan, and all later cycles."""
        if self.choices is None:
            self.rng = self.users.rng = random.Random(self.seed + _HISTORY)
        for cycle in range(MAX_CYCLES):
            quiet = cycle >= 12  # users and crashes stop: now it must end
            if self._carry_out(self._plan(cycle, quiet=quiet) if cycle else self.first, quiet=quiet):
                break
        else:
            raise invariants.ViolationError("I2 termination: still busy after 60 cycles")
        self._check_rest()

    def _plan(self, number: int, *, quiet: bool) -> Planned:
        """The first half of a cycle: look, decide, and check the decision."""
        self.actions.append(f"cycle {number}")
        unknown, unstable = self._blind_spots(quiet)
        if unknown or unstable:
            self.blinded = True
            self.actions.append(f"unreadable: {sorted(unknown | unstable)}")
        self._choose_rules(number)
        clashing = self._part_folded_names(number)
        base, local, remote = self.identified(unknown, unstable)
        refusing = number < 2 and self.refusing
        policy = Policy(
            host="h",
            utc=f"t{number}",
            remote_objection=_refuses_c if refusing else remote_objection,
            fold_local=self.fold,
        )
        plan = plan_module.make_plan(base, local, remote, policy, self.fresh)
        invariants.check_plan(base, local, remote, plan, policy, self.rng, meddled=self.meddled)
        if number == 0 and not unknown and not unstable and not refusing:
            invariants.check_intent(base.tree, local.tree, remote.tree, plan)
        if unknown and self.rules.is_empty:
            invariants.check_blind(plan)
        if self.base_lost and number == 0:
            invariants.check_union(plan)
        self.users.copies_count = False
        if self.settled:
            invariants.check_idempotence(base, plan)
        return Planned(number, base, local, remote, plan, bool(unknown or unstable), refusing, bool(clashing))

    def _carry_out(self, planned: Planned, *, quiet: bool) -> bool:
        """The second half. True if there was nothing to do and nothing hidden."""
        plan = planned.plan
        self.smooth = True
        if not self.rules.is_empty:
            self.clean = False  # what is ignored may be in the way of what is not
            for nid in self.untracked:
                self.rows.pop(nid, None)
        # What comes back is promised from now on, also if a crash comes in between.
        for nid in plan.untrack:
            content = plan.target[nid].content if nid in plan.target else None
            if content is not None:
                self.users.promised.add(content.size_bytes)
        ignored, acts = self._ignored(), self.users.acts
        finished = self._apply(planned, quiet=quiet)
        if ignored and acts == self.users.acts:
            invariants.check_ignored(ignored, self._everything())
        seen = not planned.blind and not planned.refusing
        self.settled = finished and self.smooth and seen
        quiet_plan = plan.is_empty and seen and planned.number >= self.ignoring.stop and not planned.clashing
        if quiet_plan and not plan.adopt and not plan.forget:
            self.rest = (planned.base, planned.local, planned.remote)
        return finished and quiet_plan

    def identified(self, unknown: set[RelPath], unstable: set[RelPath]) -> tuple[BaseIndex, Identified, Identified]:
        base = BaseIndex(self.rows.values())
        here, there = self.local.observe_local(unknown, unstable), self.remote.observe_remote()
        holding: set[RelPath] = set()
        if not self.rules.is_empty:
            base, untracked = self.rules.tracked_base(base)
            there = self.rules.tracked(there)
            hidden = {stat.path for stat in here if self.hides(stat.path)}
            here = [stat for stat in here if stat.path not in hidden]
            unknown = {path for path in unknown if not self.hides(path)}
            holding = {split(path)[0] for path in hidden}
            self.untracked = untracked
        blind = identify_module.Blind(unknown=unknown, holding=holding)
        local = identify_module.identify_local(here, blind, base, self.fresh, self.fold)
        remote = identify_module.identify_remote(there, base, self.fresh, SERIALS)
        return base, local, remote

    def hides(self, path: bytes) -> bool:
        return self.rules.hides(RelPath(path), directory=True)

    def _choose_rules(self, number: int) -> None:
        rules = IGNORING if number in self.ignoring else NOTHING_IGNORED
        if rules is not self.rules:
            self.rules, self.settled, self.untracked, self.rules_changed = rules, False, (), True
            self.actions.append("some names are ignored" if rules is IGNORING else "nothing is ignored any more")

    def _part_folded_names(self, number: int) -> list[bytes]:
        """Names on the server that are one name here; late in a scenario somebody renames them, so that it can end."""
        if self.fold is None:
            return []
        seen: dict[tuple[bytes, bytes], bytes] = {}
        clashing = []
        above = {bytes(each) for path in self.remote.entries for each in ancestors(RelPath(path))}
        for path in sorted(self.remote.entries.keys() | above):
            folder, _, name = path.rpartition(b"/")
            if seen.setdefault((folder, self.fold(name)), path) != path:
                clashing.append(path)
        for path in clashing if number >= PARTING else ():
            if self.remote.occupied(path):  # else it went along with its folder
                self.actions.append(f"remote user: part {path!r}")
                self.users.parted += 1
                for _ in self.remote.moves(path, path + b"%d" % self.users.parted):
                    pass
                self.settled = False
        return clashing

    def _ignored(self) -> list[tuple[int, object]]:
        if self.rules.is_empty:
            return []
        return [
            (entry.identity, (entry.state(), entry.marks))
            for replica in (self.local, self.remote)
            for path, entry in replica.entries.items()
            if self.hides(path)
        ]

    def _everything(self) -> list[tuple[int, object]]:
        return [(e.identity, (e.state(), e.marks)) for side in (self.local, self.remote) for e in side.entries.values()]

    def _blind_spots(self, quiet: bool) -> tuple[set[RelPath], set[RelPath]]:
        """Sometimes a directory can't be read, or a file changes while it is hashed."""
        if not self.limits.unknown or quiet or self.rng.random() >= 0.12 or not self.local.entries:
            return set(), set()
        path = RelPath(self.rng.choice(sorted(self.local.entries)))
        kind = self.local.entries[path].kind
        unknown, unstable = {path} if kind is DIRECTORY else set(), {path} if kind is FILE else set()
        self.clean = self.clean and not unknown
        return unknown, unstable

    def _apply(self, planned: Planned, *, quiet: bool) -> bool:
        """Both ordered streams, interleaved at random; a crash or a user may come at any point."""
        rng, base, plan = self.rng, planned.base, planned.plan
        if plan.is_empty and not plan.adopt and not plan.forget and not plan.untrack:
            return True
        outcome = outcome_module.Outcome(base, plan)
        pending: list[outcome_module.BaseChange] = list(outcome.adoptions())
        streams = [list(plan.local), list(plan.remote)]
        total = len(plan.local) + len(plan.remote)
        crash = self.limits.crashes and not quiet and rng.random() < self._crash_share(planned.number)
        stop = rng.randrange(total + 1) if crash else total + 1
        meddle = self.limits.interference and not quiet and rng.random() < 0.1
        done = [0, 0]
        while done[0] < len(streams[0]) or done[1] < len(streams[1]):
            if sum(done) >= stop:
                self.clean = False
                self._crash(pending)
                return False
            if meddle and rng.random() < 0.3:
                self.clean = self.smooth = False
                self.meddled = True
                self.users.act(rng.choice((self.local, self.remote)))
            which = rng.randrange(2)
            if done[which] >= len(streams[which]):
                which = 1 - which
            action = streams[which][done[which]]
            done[which] += 1
            if not self._step(outcome, action, pending, tear=crash and sum(done) == stop):
                self._crash(pending)
                return False
        self._commit(pending)
        return True

    def _crash_share(self, number: int) -> float:
        """Of a family one history begins smoothly as a rule; the others break off the same plan somewhere else."""
        if number:
            return 0.25
        return 0.75 if self.seed % HISTORIES else 0.1

    def _crash(self, pending: list[outcome_module.BaseChange]) -> None:
        """The last changes were not committed yet; a user may act before the resume."""
        rng = self.rng
        self.crashed = True
        self._commit(pending[: rng.randrange(len(pending) + 1)])
        self.actions.append("crash")
        if self.limits.interference and rng.random() < 0.5:
            self.meddled = True
            self.users.act(rng.choice((self.local, self.remote)))

    def _commit(self, changes: list[outcome_module.BaseChange]) -> None:
        for change in changes:
            if isinstance(change, BaseRow):
                self.rows[change.nid] = change
            else:
                self.rows.pop(change.nid, None)

    def _step(
        self, outcome: outcome_module.Outcome, action: Action, pending: list[outcome_module.BaseChange], *, tear: bool
    ) -> bool:
        """One action, as the engine would do it. False: the crash came in the middle of it."""
        replica = self.local if action.side is Side.LOCAL else self.remote
        obstacle = outcome.obstacle(action)
        if obstacle is None:
            try:
                torn = self._do(outcome, replica, action, tear)
            except ActionRefusedError as refused:
                obstacle = f"refused {refused}"
            else:
                self.actions.append(f"{action.side.value} {type(action).__name__} {action.path!r}")
                if torn:
                    return False
        if obstacle is not None:
            if self.clean:
                raise invariants.ViolationError(f"I1 order: {type(action).__name__} {action.path!r} met {obstacle}")
            self.actions.append(f"{action.side.value} {type(action).__name__} {action.path!r} failed: {obstacle}")
            outcome.failed(action)
            self.smooth = False
            return True
        gone = isinstance(action, Trash)
        tag = None if gone else replica.tag(outcome.path_after(action))
        entry = replica.entries.get(outcome.path_after(action)) if isinstance(action, Mkdir | Create) else None
        meta = Meta(mode=entry.mode, mtime_ns=entry.mtime, xattrs=_wanted(action)) if entry is not None else None
        pending.extend(self._lawful(outcome, outcome.applied(action, tag, meta)))
        if isinstance(action, Move | Park) and replica.side is Side.REMOTE:
            for nid in outcome.below(Side.REMOTE, action.nid):  # their objects have new versions now
                moved = replica.tag(outcome.path(Side.REMOTE, nid))
                if moved is not None and outcome.tag(Side.REMOTE, nid) is not None:  # else it is that of another object
                    pending.extend(outcome.retagged(Side.REMOTE, nid, moved))
        return True

    def _lawful(
        self, outcome: outcome_module.Outcome, changes: list[outcome_module.BaseChange]
    ) -> list[outcome_module.BaseChange]:
        """Check base changes against the replicas themselves."""
        for change in changes:
            if isinstance(change, BaseRow) and self.clean:
                here, there = (
                    replica.entries[outcome.path(side, change.nid)]
                    for side, replica in ((Side.LOCAL, self.local), (Side.REMOTE, self.remote))
                )
                invariants.check_rule_a(change, here.state(), there.state())
                if self.users.marking:
                    told = (there.marks, change.node.meta.xattrs or ())
                    require(all(agree(here.marks, each) for each in told), "I4 rule A: other attributes than the row's")
        return changes

    def _do(self, outcome: outcome_module.Outcome, replica: Replica, action: Action, tear: bool) -> bool:
        """Carry out; every step is conditional on what the outcome expects. True: torn by a crash."""
        new = outcome.path_after(action)
        if isinstance(action, Mkdir | Create):
            self._make(replica, new, action)
            return False
        old = outcome.path(action.side, action.nid)
        node = outcome.node(action.side, action.nid)
        assert node is not None
        hidden = None if self.rules.is_empty else self.hides
        # A remote directory without a marker has nothing of its own to move; it is gone with the last thing below it.
        hollow = node.kind is DIRECTORY and outcome.tag(action.side, action.nid) is None and replica.side is Side.REMOTE
        if isinstance(action, Trash) and (hollow or (old not in replica.entries and replica.side is Side.REMOTE)):
            if replica.below(old):
                raise ActionRefusedError(old)
            return False
        entry = None if hollow else replica.entries.get(old)
        if not (hollow and isinstance(action, Move | Park)):
            self._expect(replica, old, entry, node, outcome)
        if isinstance(action, Move | Park):
            for _ in replica.moves(old, new, hidden, hollow=hollow):
                if tear and self.rng.random() < 0.5:
                    return True
        elif isinstance(action, Trash):
            if entry is not None and entry.kind is FILE:
                self.trashed.add(entry.payload)
            replica.remove(old, hidden)
        else:
            assert entry is not None
            self._change(replica, entry, action)
        return False

    def _expect(
        self, replica: Replica, path: bytes, entry: Entry | None, node: Node, outcome: outcome_module.Outcome
    ) -> None:
        if entry is None or entry.kind is not node.kind:
            raise ActionRefusedError(path)
        if entry.kind is FILE and Contents.of(entry.payload) != node.content:
            raise ActionRefusedError(path)
        if entry.kind is SYMLINK and b"%d" % entry.payload != node.target:
            raise ActionRefusedError(path)

    def _make(self, replica: Replica, path: bytes, action: Mkdir | Create) -> None:
        meta = action.meta
        self.made += 1
        if isinstance(action, Mkdir):
            if replica.side is Side.REMOTE and path not in replica.entries and replica.below(path):
                replica.entries[path] = Entry(self.made, DIRECTORY, 0, _mode(meta), 0, replica.tick(), meta.xattrs)
                return
            marks = written(self.users.no_marks(replica, DIRECTORY), meta.xattrs)
            replica.put(path, Entry(self.made, DIRECTORY, 0, _mode(meta), 0, replica.tick(), marks))
            return
        payload = self._payload(action.kind, action.content, action.target)
        marks = written(self.users.no_marks(replica, action.kind), meta.xattrs)
        mtime = meta.mtime_ns or 0
        replica.put(path, Entry(self.made, action.kind, payload, _mode(meta), mtime, replica.tick(), marks))

    def _payload(self, kind: Kind, content: object, target: bytes | None) -> int:
        if kind is SYMLINK:
            assert target is not None
            return int(target)
        number = getattr(content, "size_bytes", None)
        assert isinstance(number, int)
        here = self.local.contents() | self.remote.contents()
        if number not in here:
            if self.clean:
                raise invariants.ViolationError(f"I4 no loss: content {number} was destroyed before it was copied")
            raise ActionRefusedError(b"source is gone")
        return number

    def _change(self, replica: Replica, entry: Entry, action: Action) -> None:
        if isinstance(action, Update):
            if entry.kind is FILE:
                self.trashed.add(entry.payload)
            entry.payload = self._payload(action.kind, action.content, action.target)
            self.made += 1
            if replica.side is Side.LOCAL:
                entry.identity = self.made  # exchanged for a new inode
        assert isinstance(action, Update | SetMeta)
        if action.meta.mode is not None:
            entry.mode = action.meta.mode
        if action.meta.mtime_ns is not None:
            entry.mtime = action.meta.mtime_ns
        entry.marks = written(entry.marks, action.meta.xattrs)
        entry.version = replica.tick()

    # --- at rest

    def _check_rest(self) -> None:
        invariants.check_convergence(self.local.state(), self.remote.state())
        self._check_no_loss()
        # Else the first copy could not be read when it was looked for, or was a user's by then; or what was changed on
        # both sides lost its name, too, to a directory: it has its new name before its new content, at a crash.
        if not self.blinded and not self.meddled and not self.crowded:
            invariants.check_copies(
                (path, (entry.kind, entry.payload))
                for path, entry in self.local.entries.items()
                if entry.kind is not DIRECTORY
            )
        if self.rest is None:  # the last cycle still wrote base rows
            base, local, remote = self.rest = self.identified(set(), set())
            policy = Policy(host="h", utc="later", fold_local=self.fold)
            plan = plan_module.make_plan(base, local, remote, policy, self.fresh)
            invariants.check_idempotence(base, plan)
        invariants.check_base(*self.rest)
        if self.users.marking:
            check_marks(self.local, self.remote, self.rest[0], self.users)

    def _check_no_loss(self) -> None:
        """I4. What counts is a file; the trash counts only where a crash made half a plan look like a user's doing.

        - Something could not be seen, or was ignored, when the plan was made that the crash broke off: then the next
          look finds it beside our own half-done moves, and may take them for a user's.
        - A deleted directory was to come back because it was moved, and after the crash it is where it was: in the
          park, which is no place, or moved back by a user. Then it was not moved, and its deletion goes on.
        """
        files = self.local.contents()
        trash = self.trashed if self.crashed else set()
        unsure = self.blinded or self.rules_changed
        invariants.check_no_loss(self.users.must, files | trash if unsure else files)
        invariants.check_no_loss(self.users.promised, files | trash)


def _refuses_c(name: bytes) -> str | None:
    return "not today" if name == b"c.x" else None


def check_marks(local: Replica, remote: Replica, base: BaseIndex, users: Users) -> None:
    """I3, I5: at rest the attributes are equal, and each was given by a user to something.

    An object that tells of none, as a client makes it that does not know of any, takes none away: then both sides are
    what the base says.
    """
    known = {base.paths[nid]: node.meta.xattrs or () for nid, node in base.tree.items()}
    for path, entry in local.entries.items():
        for told in (known[RelPath(path)], remote.entries[path].marks):
            require(agree(entry.marks, told), f"I3 convergence: attributes of {path!r}: {entry.marks} != {told}")
        require(set(entry.marks or ()) <= users.given, f"I5 intent: {path!r} has attributes that nobody gave")


def _told(entry: Entry) -> Marks | None:
    """What the server is told of a local node's attributes: of none nothing."""
    return tuple((name, value) for name, value in entry.marks or () if value is not None) or None


def _wanted(action: Action) -> Marks | None:
    return action.meta.xattrs if isinstance(action, Mkdir | Create) else None


def _mode(meta: Meta) -> int:
    return meta.mode if meta.mode is not None else 0o644


def run_seed(seed: int, limits: Limits | None = None) -> Scenario:
    """Run one scenario; raises what it violates."""
    scenario = Scenario(seed, limits or Limits())
    scenario.run()
    return scenario


FAILURES: tuple[type[Exception], ...] = (
    AssertionError,
    KeyError,
    RecursionError,
    IndexError,
    AttributeError,
    TypeError,
)


def failure_of(seed: int, limits: Limits | None = None) -> str | None:
    """What a seed violates, or None."""
    try:
        run_seed(seed, limits)
    except FAILURES as error:
        return f"{type(error).__name__}: {error}"
    return None


def failures(seeds: range, limits: Limits | None = None) -> Iterator[tuple[int, str | None]]:
    """What each seed violates, or None; what `failure_of` says of it, but a family of seeds is begun only once."""
    begun: Scenario | None = None
    broken: str | None = None
    for seed in seeds:
        try:
            if begun is None or seed // HISTORIES != begun.seed // HISTORIES:
                broken, begun = None, Scenario(seed, limits or Limits())
                begun.begin()
            if broken is None:
                begun.twin(seed).go_on()
        except FAILURES as error:
            failure = f"{type(error).__name__}: {error}"
            if not hasattr(begun, "first"):
                broken = failure
            yield seed, failure
        else:
            yield seed, broken


def shrink(seed: int, search: int = 3000) -> tuple[int, Limits, str]:
    """A smaller scenario that violates the same invariant: fewer steps and fewer kinds of trouble, other seeds too."""
    limits = Limits()
    first = failure_of(seed, limits)
    assert first is not None
    wanted = first.split(":")[1].split(" ")[1] if ":" in first else first
    best = (seed, limits, first)
    candidates: list[Callable[[Limits], None]] = [
        lambda it: setattr(it, "crowded", False),
        lambda it: setattr(it, "ignoring", False),
        lambda it: setattr(it, "folding", False),
        lambda it: setattr(it, "marking", False),
        lambda it: setattr(it, "large_marks", False),
        lambda it: setattr(it, "lost_base", False),
        lambda it: setattr(it, "unknown", False),
        lambda it: setattr(it, "interference", False),
        lambda it: setattr(it, "crashes", False),
        lambda it: setattr(it, "side_steps", max(1, it.side_steps - 2)),
        lambda it: setattr(it, "base_steps", max(0, it.base_steps - 2)),
        lambda it: setattr(it, "side_steps", max(1, it.side_steps - 1)),
        lambda it: setattr(it, "base_steps", max(0, it.base_steps - 2)),
    ]
    for change in candidates:
        smaller = replace(best[1])
        change(smaller)
        for other in [best[0], *range(search)]:
            found = failure_of(other, smaller)
            if found is not None and wanted in found:
                best = (other, smaller, found)
                break
    return best
