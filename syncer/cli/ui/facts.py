"""What is known of a root without asking the server, as `status` tells it; no rows are kept in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from blockfs.runtime.failures import said
from syncer.cli.lan.peering import switched_off
from syncer.cli.registry.condition import condition_of
from syncer.cli.registry.roots import BadRecord, LinkedRoot, Registry
from syncer.core.conflict import CONFLICT_MARK
from syncer.engine.root_state import LastCycle, RootState
from syncer.errors import EXPECTED
from syncer.state.keyfile import KeyFile
from syncer.state.statedb import StateDB
from syncer.ui.ports import CycleFacts, Pending, RootFacts

_AT_ONCE: Final = 256
"""Names: some 10 KiB of the file, and what the kernel maps around each page that is looked at: up to 0.7 MB."""


def root_facts(
    linked: LinkedRoot,
    registry: Registry,
    environment: Mapping[str, str],
    conflicts: Conflicts,
    *,
    is_working: bool = False,
) -> RootFacts:
    """One root; that its state can't be read is a fact, too.

    Args:
        linked: Which.
        registry: Where it is linked.
        environment: What switches things off.
        conflicts: Those that were counted before.
        is_working: A cycle of it runs.
    """
    record = linked.record
    try:
        with StateDB.open(linked.state, read_only=True) as database:
            state = RootState(database)
            last, shared, problems = state.last_cycle(), state.last_shared(), database.problems()
        copies = conflicts.of(linked.state, is_working=is_working)
        condition, detail = condition_of(linked, last)
        lan_off = switched_off(linked, registry, environment) or KeyFile(linked.lan_key).told().off
    except EXPECTED as error:
        return RootFacts(
            uuid=record.uuid,
            path=linked.path,
            url=record.url,
            is_volume=record.folder is None,
            block_size=record.block_size,
            condition="degraded",
            detail=said(error),
            is_paused=linked.paused,
        )
    return RootFacts(
        uuid=record.uuid,
        path=linked.path,
        url=record.url,
        is_volume=record.folder is None,
        block_size=record.block_size,
        condition=condition,
        detail=detail,
        last=_cycle(last),
        shared=_cycle(shared),
        pending=tuple(
            Pending(path=each.path, is_failure=each.kind == "failure", text=each.text, since_s=each.since_ns / 1e9)
            for each in problems
        ),
        conflicts=copies,
        is_paused=linked.paused,
        lan_off=lan_off,
    )


class Conflicts:
    """How many conflict copies the rows of states name. Each state is counted again when its rows have changed.

    It is opened again and again: what was looked at stays mapped until it is closed, and the page's process is meant to
    be small also where a root has a million files. What changes meanwhile is counted at the next look.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self._known: dict[str, tuple[tuple[int, int], int]] = {}

    def of(self, state: str, *, is_working: bool = False) -> int:
        """Those of one; while a cycle of it runs, those before it, if they are known."""
        if is_working and state in self._known:
            return self._known[state][1]
        count, after = 0, b""
        stamp: tuple[int, int] | None = None
        while True:
            with StateDB.open(state, read_only=True) as database, database.rows() as rows:
                if not after:
                    stamp = None if rows.stamp is None else (rows.stamp, len(rows))
                    known = self._known.get(state)
                    if known is not None and known[0] == stamp:
                        return known[1]
                found, after = rows.count_names(CONFLICT_MARK, after, _AT_ONCE)
            count += found
            if not after:
                break
        if stamp is not None:
            self._known[state] = stamp, count
        return count


def bad_facts(bad: BadRecord) -> RootFacts:
    """A root of which only the record's place is known."""
    return RootFacts(uuid=bad.uuid, path=os.fsencode(bad.path), condition="damaged", detail=str(bad.error))


def _cycle(last: LastCycle | None) -> CycleFacts | None:
    if last is None:
        return None
    return CycleFacts(ended_s=last.ended_ns / 1e9, exit_code=last.exit_code, error=last.error, counts=last.counts)
