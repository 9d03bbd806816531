"""Roots: how they stand, how far a cycle is, how the last one went, where blocks came from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from blockfs.exitcodes import ExitCode
from syncer.ui.ports import CycleFacts, Pending, RootFacts
from syncer.ui.words import THIN, counted, moment, name, number, plain, size, span
from syncer.watch.cyclewords import FOLLOWING, SOURCES, TO_PEERS, changed, standing
from syncer.watch.live import RootLive

Tone = Literal["good", "busy", "warn", "bad", "off"]

_PHASES: Final[dict[str, tuple[str, Tone]]] = {
    "starting": ("Starting", "busy"),
    "idle": ("In step", "good"),
    "quiet": ("Changes coming in", "busy"),
    "working": ("Syncing", "busy"),
    "retrying": ("Trying again", "warn"),
    "consent": ("Waits for you", "bad"),
    "away": ("Not there", "warn"),
    "paused": ("Paused", "off"),
    "damaged": ("Damaged", "bad"),
}
_CONDITIONS: Final[dict[str, tuple[str, Tone]]] = {
    "ok": ("Not watched", "off"),
    "running": ("A command is at work", "busy"),
    "never": ("Never synced", "off"),
    "degraded": ("Not watched", "warn"),
    "away": ("Not there", "warn"),
    "damaged": ("Damaged", "bad"),
}
NOT_ALL: Final = "In step, but for some"
WITH_CONFLICTS: Final = "In step, with conflicts"
_PARTS: Final = {
    "server": "blocks_received",
    "peers": "blocks_from_peers",
    "roots": "blocks_from_roots",
    "own": "blocks_from_own",
}
_DONE: Final = ("pushed", "pulled", "moved", "deleted", "conflicts")


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """How far a cycle is.

    Attributes:
        done: Out of `of`; 0 out of 0: nobody knows yet.
        of: See there.
        text: In words.
        latest: The path that was synced last.
    """

    done: int
    of: int
    text: str
    latest: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Of a bar that shows shares.

    Attributes:
        key: Names its colour.
        label: What it is.
        count: Blocks.
        at: Where it begins, of 1000.
        width: How wide it is, of 1000.
    """

    key: str
    label: str
    count: str
    at: int
    width: int


class CycleView(msgspec.Struct, frozen=True, kw_only=True):
    """How a cycle went.

    Attributes:
        at: When it ended.
        at_s: The same, seconds.
        outcome: In words.
        is_broken: It was broken off.
        done: What it did, in words.
        cost: What travelled and how long it took, in words; empty if nothing is known.
    """

    at: str
    at_s: float
    outcome: str
    is_broken: bool
    done: str
    cost: str


class PendingView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits, or a remark.

    Attributes:
        path: To be read.
        raw: For a link.
        text: Why.
        since: Since when.
    """

    path: str
    raw: bytes
    text: str
    since: str


class RootView(msgspec.Struct, frozen=True, kw_only=True):
    """A root as the page shows it.

    Attributes:
        uuid: Its name in the registry.
        path: To be read.
        folder: All of that but the last name.
        name: The last name.
        raw: Its path.
        url: Its container.
        kind: What it is.
        state: How it stands, in a word or two.
        word: That of `blocksync status`.
        tone: How much it concerns a person.
        since: Since when.
        why: What there is to say about it.
        bar: How far the cycle is; None: none runs.
        last: The last cycle; None: there was none.
        failures: What is not synced.
        remarks: Of the last cycle.
        conflicts: Conflict copies, in words; empty: none.
        conflict_count: How many these are.
        waits: What is not synced, in words; empty: nothing.
        watched: How changes are noticed.
        lan: Why devices on the network are not asked; empty: they are.
        parts: Where the blocks came from, in the last cycle in which any did from elsewhere, or the last one.
        parts_at: When that was.
        given: Blocks that went to peers then; empty: none.
        is_watched: The daemon watches it: it can be paused, and asked to run.
        is_paused: By `blocksync pause`.
        needs_consent: The safety stop waits for a person.
    """

    uuid: str
    path: str
    folder: str
    name: str
    raw: bytes
    url: str
    kind: str
    state: str
    word: str
    tone: Tone
    since: str
    why: tuple[str, ...]
    bar: Bar | None
    last: CycleView | None
    failures: tuple[PendingView, ...]
    remarks: tuple[PendingView, ...]
    conflicts: str
    conflict_count: int
    waits: str
    watched: str
    lan: str
    parts: tuple[Part, ...]
    parts_at: str
    given: str
    is_watched: bool
    is_paused: bool
    needs_consent: bool


def view_root(facts: RootFacts, live: RootLive | None, now_s: float) -> RootView:
    """One root.

    Args:
        facts: What is known of it.
        live: What the daemon says; None: it does not watch it.
        now_s: Seconds since the epoch.
    """
    if live is not None and facts.is_paused and live.phase in {"idle", "quiet", "retrying"}:
        live = msgspec.structs.replace(live, phase="paused")  # said just now: the daemon hears of it in a moment
    if live is None:
        state, tone = _PHASES["paused"] if facts.is_paused else _CONDITIONS[facts.condition]
    else:
        state, tone = _PHASES[live.phase]
    failures = [each for each in facts.pending if each.is_failure]
    why = [facts.detail] if live is None or live.phase in {"idle", "quiet"} else []
    if live is not None:
        # What the buttons and the list below say is not said twice.
        said = "" if live.phase == "paused" or live.detail == f"{len(failures)} not synced" else live.detail
        why = [said, *live.degraded, *(text for text in why if facts.condition in {"degraded", "away"})]
    is_partly = facts.last is not None and facts.last.exit_code == ExitCode.PARTLY_DONE
    if failures and live is not None and (live.phase == "idle" or (live.phase == "retrying" and is_partly)):
        state, tone = NOT_ALL, "warn"
    elif facts.conflicts and live is not None and live.phase == "idle":
        state, tone = WITH_CONFLICTS, "warn"
    parts_of = facts.shared or facts.last
    folder, slash, last = name(facts.path).rpartition("/")
    return RootView(
        uuid=facts.uuid,
        path=name(facts.path),
        folder=folder + slash,
        name=last,
        raw=facts.path,
        url=plain(facts.url),
        kind="" if not facts.url else "volume" if facts.is_volume else "folder",
        state=state,
        word=standing(
            facts.condition,
            None if live is None else live.phase,
            is_paused=facts.is_paused,
            was_stopped=facts.last is not None and facts.last.exit_code == ExitCode.SAFETY_STOP,
            has_conflicts=bool(facts.conflicts),
        ),
        tone=tone,
        since="" if live is None else moment(live.since, now_s),
        why=tuple(dict.fromkeys(plain(text) for text in why if text)),
        bar=view_bar(live) if live is not None and live.phase == "working" else None,
        last=None if facts.last is None else view_cycle(facts.last, now_s, {} if live is None else live.changed),
        failures=tuple(_pending(each, now_s) for each in failures),
        remarks=tuple(_pending(each, now_s) for each in facts.pending if not each.is_failure),
        conflicts=counted(facts.conflicts, "conflict", "conflicts") if facts.conflicts else "",
        conflict_count=facts.conflicts,
        waits=f"{counted(len(failures), 'path is', 'paths are')} not synced" if failures else "",
        watched=_watched(live),
        lan=plain(facts.lan_off),
        parts=view_parts(parts_of.counts) if parts_of is not None else (),
        parts_at="" if parts_of is None else moment(parts_of.ended_s, now_s),
        given=_given(facts.shared),
        is_watched=live is not None,
        is_paused=facts.is_paused,
        needs_consent=live is not None and live.phase == "consent",
    )


def view_bar(live: RootLive) -> Bar:
    """How far the cycle is that runs."""
    found = live.progress
    latest = plain(live.moving)
    if found.get("files"):
        done, of = found["bytes_done"], found["bytes"]
        rate = found["bytes_per_s"]
        travelled = f"↑ {size(found['bytes_sent'])} ↓ {size(found['bytes_received'])}, {size(rate)}/s"
        texts = [f"{number(found['files_done'])} of {number(found['files'])}"]
        if of:
            texts.append(f"{size(done)} of {size(of)}")
        texts.append(travelled)
        # By what is done, not by what travels: most blocks need not.
        if of and 0 < done < of and found.get("seconds"):
            texts.append(f"about {span(found['seconds'] * (of - done) / done)} left")
        if not of or not done:
            return Bar(done=found["files_done"], of=found["files"], text=" · ".join(texts), latest=latest)
        return Bar(done=done, of=of, text=" · ".join(texts), latest=latest)
    texts = ["looking at both sides"]
    done, of = found.get("bytes_hashed", 0), found.get("bytes_to_hash", 0)
    if of:
        texts.append(f"read {size(done)} of {size(of)}")
    if found.get("bytes_received"):
        texts.append(f"the server's list: ↓ {size(found['bytes_received'])}")
    return Bar(done=min(done, of), of=of, text=" · ".join(texts), latest=latest)


def view_cycle(cycle: CycleFacts, now_s: float, changed: Mapping[str, int | float]) -> CycleView:
    """How a cycle went; of one that did nothing also what the last one did that did something.

    What is pushed comes back as a change of the server's: a cycle that finds nothing follows at once.
    """
    counts = cycle.counts
    before = _done(changed)
    cost = ""
    if "seconds" in counts:
        sent, received = counts.get("bytes_sent", 0), counts.get("bytes_received", 0)
        cost = f"↑ {size(sent)} ↓ {size(received)} in {span(counts['seconds'])}"
        cost += f", {counted(int(counts.get('requests', 0)), 'request', 'requests')}"
    return CycleView(
        at=moment(cycle.ended_s, now_s),
        at_s=cycle.ended_s,
        outcome=plain(cycle.error) if cycle.error else meaning(cycle.exit_code),
        is_broken=cycle.error is not None,
        done=_done(counts) or (f"nothing to do; before, {before}" if before else "nothing to do"),
        cost=cost,
    )


def _done(counts: Mapping[str, int | float]) -> str:
    return ", ".join(changed(key, counts[key], between=THIN) for key in _DONE if counts.get(key))


def view_parts(counts: Mapping[str, int | float]) -> tuple[Part, ...]:
    """Where a cycle's blocks came from, as shares of a bar; empty: none came."""
    found = [(part, SOURCES[key], int(counts.get(key, 0))) for part, key in _PARTS.items()]
    total = sum(count for _, _, count in found)
    parts, before = [], 0
    for key, label, count in found:
        at, end = (1000 * before // total, 1000 * (before + count) // total) if total else (0, 0)
        parts.append(Part(key=key, label=label, count=number(count), at=at, width=end - at))
        before += count
    return tuple(parts) if total else ()


def meaning(code: int) -> str:
    """What an exit code means, in the words of the reference."""
    return next((known.meaning for known in ExitCode if known == code), f"exit code {code}")


def _given(shared: CycleFacts | None) -> str:
    count = 0 if shared is None else int(shared.counts.get("blocks_to_peers", 0))
    return f"{counted(count, 'block', 'blocks')} {TO_PEERS}" if count else ""


def _watched(live: RootLive | None) -> str:
    if live is None or not live.following:
        return ""
    return f"changes here by {live.watching}; {FOLLOWING.get(live.following, live.following)}"


def _pending(pending: Pending, now_s: float) -> PendingView:
    return PendingView(
        path=name(pending.path) or "the root itself",
        raw=pending.path,
        text=plain(pending.text),
        since=moment(pending.since_s, now_s),
    )
