"""setuid, setgid and sticky bits in the planner: a part of the metadata on which a side may have no opinion."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from syncer.core.model import Meta, Node, meta_of
from syncer.core.parts import NO_PARTS, Parts
from syncer.core.planner.diff import meta_change
from syncer.core.planner.merge import merge_meta
from syncer.core.planner.outcome import agreed
from tests.strategies import metas
from tests.unit.syncer.core.trees import file

MODES = st.integers(0, 0o7777)


def node(meta: Meta) -> Node:
    return replace(file("f", 1), meta=meta)


@given(mode=MODES, special=st.booleans())
def test_a_mode_is_the_bits_that_all_have_and_those_of_opinion(mode: int, special: bool) -> None:
    meta = meta_of(mode, special=special)
    assert meta.full_mode == mode & (0o7777 if special else 0o777)
    assert (meta.special is None) is not special


@given(meta=metas)
def test_a_root_that_takes_no_part_has_no_opinion(meta: Meta) -> None:
    own = NO_PARTS.own(meta)
    assert (own.mode, own.mtime_ns, own.special, own.xattrs) == (meta.mode, meta.mtime_ns, None, None)
    assert Parts(xattrs=True, special_modes=True).own(meta) == meta


@given(base=MODES, local=MODES, remote=MODES)
def test_a_side_without_an_opinion_leaves_the_servers_bits_and_is_not_given_them(
    base: int, local: int, remote: int
) -> None:
    known, here, there = (node(meta_of(mode)) for mode in (base, local, remote))
    here = node(NO_PARTS.own(here.meta))
    merged = merge_meta(known, here, there)
    assert merged.special == remote & 0o7000
    sent = meta_change(there.meta, merged, known.meta)
    assert sent is None or sent.special is None
    set_here = meta_change(here.meta, merged, known.meta)
    after = node(here.meta if set_here is None else here.meta.overlaid(NO_PARTS.own(set_here)))
    after_there = node(there.meta if sent is None else there.meta.overlaid(sent))
    settled = agreed(known, after, after_there)
    assert settled is not None
    assert settled.meta.special == remote & 0o7000
    assert merge_meta(settled, after, after_there) == settled.meta
    assert meta_change(after.meta, settled.meta, settled.meta) is None


@given(base=MODES, local=MODES, remote=MODES)
def test_with_an_opinion_what_changed_wins_and_the_server_if_both_did(base: int, local: int, remote: int) -> None:
    known, here, there = (node(meta_of(mode)) for mode in (base, local, remote))
    merged = merge_meta(known, here, there).special
    bits = [mode & 0o7000 for mode in (base, local, remote)]
    assert merged == (bits[2] if bits[2] != bits[0] else bits[1])


def test_without_a_base_no_bits_were_removed() -> None:
    assert merge_meta(None, node(meta_of(0o4755)), node(meta_of(0o2755))).special == 0o6000


def test_special_bits_are_set_with_the_whole_mode() -> None:
    assert meta_change(meta_of(0o755), meta_of(0o4755), meta_of(0o755)) == meta_of(0o4755)


def test_no_opinion_on_bits_is_no_difference_that_could_bring_back_old_attributes() -> None:
    """A directory made here again agrees with the server's, whatever its old row said."""
    known = node(replace(meta_of(0o755), xattrs=((b"old", b"1"),)))
    settled = agreed(known, node(meta_of(0o755, special=False)), node(meta_of(0o2755)))
    assert settled is not None
    assert settled.meta == meta_of(0o2755)
