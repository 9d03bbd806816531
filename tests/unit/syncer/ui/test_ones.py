"""Of one thing the page does not speak as of many."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from syncer.ui.ports import (
    AccountFacts,
    Compared,
    ContainerFacts,
    CycleFacts,
    MapFacts,
    MountFacts,
    Pending,
    RootFacts,
    SharerFacts,
    SnapshotFacts,
    StoreFacts,
    Use,
    VolumeFacts,
)
from syncer.ui.views.ignored import view_names
from syncer.ui.views.lists import view_compared, view_conflicts, view_trash
from syncer.ui.views.peers import view_peers
from syncer.ui.views.plans import view_plan
from syncer.ui.views.roots import RootView, view_root
from syncer.ui.views.servers import view_store
from syncer.ui.views.summary import view_summary
from syncer.ui.views.volumes import view_map, view_mount, view_volume
from syncer.ui.words import span
from syncer.watch.live import Phase, RootLive

NOW: Final = 1_800_000_000.0
MANY: Final = re.compile(r"\b1 (?!is\b|has\b|needs\b|waits\b|differs\b)[a-z]+s\b")
"""One, and a word that ends as those of many do; those that are allowed are verbs."""

COUNTS: Final = dict.fromkeys(
    (
        *("pushed", "pulled", "moved", "deleted", "conflicts", "bytes_sent", "bytes_received", "seconds", "requests"),
        *("blocks_received", "blocks_from_peers", "blocks_from_roots", "blocks_from_own", "blocks_to_peers"),
    ),
    1,
)
PROGRESS: Final = dict.fromkeys(
    ("files", "files_done", "bytes", "bytes_done", "bytes_sent", "bytes_received", "bytes_per_s", "seconds"), 1
)


def one_root(phase: Phase, progress: dict[str, int]) -> RootView:
    cycle = CycleFacts(ended_s=NOW, exit_code=3, error=None, counts=COUNTS)
    facts = RootFacts(
        uuid="1",
        path=b"/r",
        url="u",
        conflicts=1,
        last=cycle,
        shared=cycle,
        pending=(Pending(path=b"a", is_failure=True, text="no", since_s=NOW),),
    )
    return view_root(facts, RootLive(root="/r", uuid="1", phase=phase, since=NOW, progress=progress), NOW)


def roots() -> Iterator[Any]:
    found = [one_root("idle", {}), one_root("consent", {}), one_root("working", PROGRESS)]
    found.append(one_root("working", {"bytes_hashed": 1, "bytes_to_hash": 1, "bytes_received": 1}))
    yield found
    yield from (view_summary([root]) for root in found)


def plans() -> Iterator[Any]:
    for action in ("mkdir", "create", "update", "setmeta", "move", "park", "trash"):
        step = {"side": "local", "action": action, "path": "p", "content": {"size_bytes": 1}}
        told = {"digest": "d", "created": "", "needs_consent": [], "actions": [step], "not_synced": [], "notes": []}
        yield view_plan(msgspec.json.encode(told), 1)


def lists() -> Iterator[Any]:
    conflict = {"path": "a", "encoded": "a", "kind": "file", "size_bytes": 1, "host": "h", "utc": "", "modified_ns": 1}
    yield view_conflicts([msgspec.json.encode(conflict)], 1, (), NOW)
    kept = {"id": "1", "name": "a", "kind": "file", "size_bytes": 1, "deleted": "", "expires": ""}
    yield view_trash([msgspec.json.encode(kept)], 1, ())
    yield view_compared(Compared(diff=None, cells=b"\x01\x00", cell_bytes=1, differing_bytes=1, host="h", other=None))
    yield view_names([msgspec.json.encode({"type": "ignore-names", "more": "", "more_lines": False, "unread": 1})])


def volumes() -> Iterator[Any]:
    use = Use(at_s=NOW, logical_bytes=1, unique_bytes=1, stored_bytes=1)
    snapshot = SnapshotFacts(name=b"s", source=b"", created_s=NOW, files=1, logical_bytes=1)
    sharer = SharerFacts(path=b"a", size_bytes=1, blocks=1, shared=1, shared_bytes=1, other=b"b")
    yield view_mount(MountFacts(uuid="1", volume=b"v", mountpoint=b"m", staged_bytes=1, scrub=(1, 1)))
    yield view_volume(
        VolumeFacts(
            files=1, filled_bytes=1, now=use, past=(), snapshots=(snapshot,), sharers=(sharer,), is_whole=True
        ),
        NOW,
    )  # fmt: skip
    yield view_map(
        MapFacts(
            size_bytes=1, block_size=1, blocks=1, cells=((0, 0, 0, 1, 0),), others=((b"b", 1),), is_whole=False,
            is_behind=True,
        )
    )  # fmt: skip


def others() -> Iterator[Any]:
    container = ContainerFacts(name="c", objects=1, size_bytes=1, modified_s=NOW, versions=1, old_bytes=1)
    account = AccountFacts(name="a", quota_bytes=1, containers=(container,))
    yield view_store(StoreFacts(block_size=1, stored_bytes=1, versions=1, accounts=(account,), trouble=""), NOW)
    given = {"peer": "p", "address": "a", "blocks": 1, "bytes": 1}
    peer = {"peer": "p", "link": "l", "addresses": ["a"], "heard_s": 1, "is_connected": True, "bytes_per_s": 1}
    exchanged = dict.fromkeys(("blocks_from_peers", "bytes_from_peers", "blocks_to_peers", "bytes_to_peers"), 1)
    figures = {
        "links": ["l"], "peers": [{**peer, "blocks": 1, "bytes": 1}], "uploads": [given],
        "bans": [{"peer": "p", "address": "a", "for_s": 1}], **exchanged,
    }  # fmt: skip
    yield view_peers(msgspec.json.encode({"off": "", "shares": [], "figures": figures}))
    yield [span(seconds) for seconds in (1, 60, 90, 3600, 5400, 86_400, 172_800)]


@pytest.mark.parametrize("views", [roots, plans, lists, volumes, others])
def test_one_is_told_as_one(views: Any) -> None:
    told = [text for view in views() for text in texts(msgspec.to_builtins(view))]
    assert any(re.search(r"\b1 [a-z]", text) for text in told), "there is something to look at"
    assert [text for text in told if MANY.search(text)] == []


def texts(value: Any) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for each in value.values() for text in texts(each))
    elif isinstance(value, (list, tuple)):
        yield from (text for each in value for text in texts(each))
