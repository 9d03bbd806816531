"""What collections and repackings decide, as pure functions: whatever is seen, nothing that is needed may go."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId, Vector
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import ChunkId, Content
from syncer.remote.repository.format.packs import Entry, PackRef
from syncer.remote.repository.maintenance.collecting import Decision, commits_due, decide
from syncer.remote.repository.maintenance.marking import Sight, Use, choose
from syncer.remote.repository.maintenance.repacking import sparse
from syncer.remote.stores.port import Blob
from tests import effort

EXAMPLES = effort.count("repository decisions")
GRACE = 10
NOW = 100
DIGESTS, INDEXES, COMMITS = ([kind + bytes([number]) * 31 for number in range(8)] for kind in (b"p", b"i", b"c"))
some = st.frozensets(st.sampled_from(DIGESTS))
some_indexes = st.frozensets(st.sampled_from(INDEXES))
some_commits = st.frozensets(st.sampled_from(COMMITS))
whens = st.integers(NOW - 3 * GRACE, NOW)


def commit(digest: bytes) -> Commit:
    device = DeviceId(digest[:16])
    return Commit(
        parents=(), vector=Vector({device: 1}), root=b"", number=1, device=device, time_ns=0, tool="test", name="host"
    )


def blobs(found: Mapping[bytes, int]) -> dict[bytes, Blob]:
    return {digest: Blob(digest.hex(), 1000, when) for digest, when in found.items()}


def there(digests: list[bytes]) -> st.SearchStrategy[dict[bytes, Blob]]:
    return st.dictionaries(st.sampled_from(digests), whens).map(blobs)


condemned = st.builds(
    lambda packs, indexes, commits: Condemned(
        device=DeviceId(bytes(16)),
        time_ns=0,
        packs=tuple(sorted(packs)),
        indexes=tuple(sorted(indexes)),
        commits=tuple(sorted(commits)),
    ),
    some,
    some_indexes,
    some_commits,
)


@st.composite
def sights(draw: st.DrawFn) -> Sight:
    lists = draw(st.lists(st.tuples(condemned, whens), max_size=3))
    commits = draw(there(COMMITS))
    kept = draw(st.frozensets(st.sampled_from(sorted(commits)))) if commits else frozenset()
    return Sight(
        now_ns=NOW,
        lists={f"condemned/{at}": (Blob(f"condemned/{at}", 300, when), each) for at, (each, when) in enumerate(lists)},
        packs=draw(there(DIGESTS)),
        indexes=draw(there(INDEXES)),
        commits=commits,
        kept={CommitId(digest): commit(digest) for digest in kept},
    )


def gone(decision: Decision) -> set[bytes]:
    return {digest for due in decision.due for digest in due.packs}


def backwards(sight: Sight) -> Sight:
    """The same, told in another order."""
    return replace(
        sight,
        **{
            name: dict(reversed(list(getattr(sight, name).items())))
            for name in ("lists", "packs", "indexes", "commits", "kept")
        },
    )


@settings(max_examples=EXAMPLES)
@given(sights(), some, some, some_indexes)
def test_a_collection_takes_nothing_that_is_needed_young_or_not_announced(
    sight: Sight, needed: frozenset[bytes], held: frozenset[bytes], live: frozenset[bytes]
) -> None:
    """Breaks when one step of the two is left out for anything, or a list is done while somebody relies on it."""
    found = decide(sight, needed, held, live, grace_ns=GRACE)
    old = {name: each for name, (blob, each) in sight.lists.items() if blob.modified_ns + GRACE < NOW}
    assert not gone(found) & needed
    for due in found.due:
        each = old[due.name]
        assert set(due.packs) <= set(due.rows) <= set(each.packs)
        assert not held.intersection(due.rows)
        assert set(due.packs) <= sight.packs.keys()
        assert set(due.indexes) <= (set(each.indexes) & sight.indexes.keys()) - live
        if due.is_last:  # whoever reads the list afterwards must miss nothing
            assert not any(digest in needed and digest in sight.packs for digest in each.packs)
    announced = {digest for each in old.values() for digest in each.commits}
    assert set(found.commits_due) == announced & sight.commits.keys() - sight.kept.keys()
    assert found.commits_due == commits_due(sight, grace_ns=GRACE)
    told = {digest for _, each in sight.lists.values() for digest in (*each.packs, *each.indexes, *each.commits)}
    for digests, blobs, stay in (
        (found.packs, sight.packs, needed),
        (found.indexes, sight.indexes, live),
        (found.commits, sight.commits, sight.kept.keys()),
    ):
        assert list(digests) == sorted(digests)
        expected = {digest for digest, blob in blobs.items() if blob.modified_ns + GRACE < NOW}
        assert set(digests) == expected - set(stay) - told
    assert decide(backwards(sight), needed, held, live, grace_ns=GRACE) == found


@settings(max_examples=EXAMPLES)
@given(sights(), some, some_indexes)
def test_what_nobody_needs_is_gone_after_two_collections_a_grace_apart(
    sight: Sight, needed: frozenset[bytes], live: frozenset[bytes]
) -> None:
    """And all that is needed is there. Breaks when a list is never done, or never ends."""
    names = iter(range(100, 200))
    for _ in range(4):
        found = decide(sight, needed, frozenset(), live, grace_ns=GRACE)
        lists = {
            name: each for name, each in sight.lists.items() if name not in {d.name for d in found.due if d.is_last}
        }
        made = Condemned(
            device=DeviceId(bytes(16)), time_ns=0, packs=found.packs, indexes=found.indexes, commits=found.commits
        )
        if found.packs or found.indexes or found.commits:
            name = f"condemned/{next(names)}"
            lists[name] = (Blob(name, 300, sight.now_ns), made)
        without = {
            "packs": {digest for due in found.due for digest in due.packs},
            "indexes": {digest for due in found.due for digest in due.indexes},
            "commits": set(found.commits_due),
        }
        sight = replace(
            sight,
            now_ns=sight.now_ns + GRACE + 1,
            lists=lists,
            **{
                name: {digest: blob for digest, blob in getattr(sight, name).items() if digest not in gone}
                for name, gone in without.items()
            },
        )
    assert sight.packs.keys() <= needed
    assert sight.indexes.keys() <= live
    assert sight.commits.keys() == sight.kept.keys()


def place(digest: bytes) -> Found:
    return Found(PackRef(digest, bytes(16)), Entry(ChunkId(bytes(32)), 24, 100, 90))


@settings(max_examples=EXAMPLES)
@given(st.sampled_from([None, *DIGESTS]), some, some, some)
def test_of_several_places_one_is_chosen_and_whatever_else_goes_it_stays_the_one(
    own: bytes | None, places: frozenset[bytes], there: frozenset[bytes], avoided: frozenset[bytes]
) -> None:
    """Breaks when two collections beside each other each take away the place that the other one relies on."""
    at = None if own is None else place(own)
    chosen = choose(at, map(place, places), there, avoided)
    candidates = {*places, *([] if own is None else [own])} & there
    assert (chosen is None) == (not candidates)
    if chosen is None:
        return
    digest = chosen.pack.digest
    assert digest in candidates
    assert digest not in avoided or candidates <= avoided
    if own in candidates and (own not in avoided or candidates <= avoided):
        assert digest == own
    assert choose(at, map(place, sorted(places, reverse=True)), there, avoided) == chosen
    for other in candidates - {digest}:
        assert choose(at, map(place, places), there - {other}, avoided) == chosen
        assert choose(at, map(place, places), there, avoided | {other}) == chosen
    assert choose(at, map(place, places), {digest}, avoided) == chosen


@settings(max_examples=EXAMPLES)
@given(
    sights(),
    st.dictionaries(st.sampled_from(DIGESTS), st.tuples(st.sampled_from(list(Content)), st.integers(0, 50))),
    st.dictionaries(st.sampled_from(DIGESTS), st.integers(0, 100)),
)
def test_packs_are_repacked_if_less_than_half_is_needed_and_nothing_else_is_to_become_of_them(
    sight: Sight, needs: dict[bytes, tuple[Content, int]], stored: dict[bytes, int]
) -> None:
    uses = {
        PackRef(digest, bytes(16)): Use(content=content, live_bytes=live) for digest, (content, live) in needs.items()
    }
    found = sparse(sight, uses, stored, grace_ns=GRACE)
    assert len(set(found)) == len(found)
    expected = {
        digest
        for digest, (_, live) in needs.items()
        if digest in sight.packs
        and sight.packs[digest].modified_ns + GRACE < NOW
        and not any(digest in each.packs for _, each in sight.lists.values())
        and 0 < live < stored.get(digest, 0) / 2
    }
    assert {pack.digest for pack in found} == expected
    assert sparse(backwards(sight), dict(reversed(list(uses.items()))), stored, grace_ns=GRACE) == found
    kinds = [uses[pack].content for pack in found]
    assert kinds == sorted(kinds, key=lambda kind: kind.value)  # packs of one kind go together
    listed = Condemned(device=DeviceId(bytes(16)), time_ns=0, packs=tuple(sorted(expected)))
    again = replace(sight, lists={**sight.lists, "condemned/new": (Blob("condemned/new", 300, NOW), listed)})
    assert sparse(again, uses, stored, grace_ns=GRACE) == []
