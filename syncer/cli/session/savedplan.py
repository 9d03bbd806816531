"""Plans in files: read one, and let a cycle do exactly that."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from blockfs.runtime.output import JSON_VERSION, shown
from syncer.cli.registry.roots import LinkedRoot
from syncer.core.model import Plan
from syncer.core.planner.savedplan import chosen
from syncer.errors import CorruptionError, FormatTooNewError, NotFoundError, PlanChangedError, UsageError
from syncer.protocol.jsontext import MALFORMED


class PlanNote(msgspec.Struct, frozen=True, kw_only=True):
    """A remark on a path."""

    path: str
    text: str


class SavedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as `plan --json` prints it: docs/reference/plan-format.md.

    Attributes:
        root: Path of the root, for people.
        root_uuid: Which root.
        url: Its container.
        created: When, ISO 8601.
        host: What conflict copies are called after.
        utc: Likewise.
        digest: Names the deletions, for `--allow-deletes`.
        needs_consent: Why it would be a safety stop; empty if it would not.
        actions: What is done, each with what it expects.
        not_synced: What is left alone and counts as a failure.
        notes: Remarks.
    """

    type: str
    version: int
    root: str
    root_uuid: str
    url: str
    created: str
    host: str
    utc: str
    digest: str
    needs_consent: list[str]
    actions: list[dict[str, Any]]
    not_synced: list[PlanNote]
    notes: list[PlanNote]


def read_plan(path: str) -> SavedPlan:
    """Read a saved plan; "-" is stdin.

    Raises:
        NotFoundError: No such file.
        CorruptionError: Not a plan.
        FormatTooNewError: Of a later version.
        UsageError: Not exactly one plan.
    """
    try:
        if path == "-":
            raw = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                raw = file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist; `blocksync plan ROOT --json > FILE` makes a plan") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; expected a file that `blocksync plan ROOT --json > FILE` made") from None
    lines = [line for line in raw.splitlines() if line.strip()]
    if len(lines) != 1:
        raise UsageError(f"{path} holds {len(lines)} lines, expected one plan: give `blocksync plan` one ROOT")
    try:
        head = msgspec.json.decode(lines[0], type=_Head)
        if head.type != "plan":
            raise UsageError(f"{path} is no plan: its type is {head.type!r}")
        if head.version > JSON_VERSION:
            raise FormatTooNewError(path, head.version, JSON_VERSION)
        return msgspec.json.decode(lines[0], type=SavedPlan)
    except MALFORMED as error:
        raise CorruptionError(f"{path} is no plan: {error}; make it anew with `blocksync plan ROOT --json`") from None


def selection(saved: SavedPlan, linked: LinkedRoot) -> Callable[[Plan], Plan]:
    """Makes of a new plan the part that was saved.

    Raises:
        PlanChangedError: (when called) something of it would not be done any more. Nothing is done then.
        UsageError: It is another root's, or was made for another container.
    """
    if saved.root_uuid != linked.record.uuid or saved.url != linked.record.url:
        raise UsageError(
            f"the plan was made for {saved.root} and {saved.url}; this is {shown(linked.path)} and {linked.record.url}"
        )

    def select(plan: Plan) -> Plan:
        part, stale = chosen(plan, saved.actions)
        if stale:
            raise PlanChangedError([(each.path, each.reason) for each in stale], len(saved.actions))
        return part

    return select


class _Head(msgspec.Struct):
    type: str
    version: int
