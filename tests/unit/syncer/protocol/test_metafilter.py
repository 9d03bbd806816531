"""The filter of a listing by metadata, and X-Object-Sharing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.protocol.pithos.headers import HeaderError
from syncer.protocol.pithos.metafilter import parse_filter
from syncer.protocol.pithos.sharing import parse_sharing, sharing_value

keys = st.text("abc", min_size=1, max_size=2)
metas = st.dictionaries(keys, st.text("xyz", max_size=2), max_size=4)
names = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=":,;=/*% \xa0"), min_size=1, max_size=9
)


@given(metas, st.sets(keys), st.sets(keys), st.dictionaries(keys, st.text("xyz", min_size=1, max_size=2), max_size=2))
def test_all_terms_must_hold(meta: dict[str, str], there: set[str], gone: set[str], equal: dict[str, str]) -> None:
    terms = [*there, *(f"!{key}" for key in gone), *(f"{key}={value}" for key, value in equal.items())]
    holds = (
        all(key in meta for key in there)
        and not any(key in meta for key in gone)
        and all(meta.get(key) == value for key, value in equal.items())
    )
    assert (
        parse_filter(" , ".join(terms).upper().replace("X", "x").replace("Y", "y").replace("Z", "z")).matches(meta)
        == holds
    )


@pytest.mark.parametrize("text", ["a>b", "a<=b", "a!=b", "!a=b", "=b", "!", "a==b", ",".join("abcdefgh" * 5)])
def test_other_comparisons_are_refused(text: str) -> None:
    with pytest.raises(HeaderError):
        parse_filter(text)


@given(st.lists(names.map(str.strip).filter(lambda name: name not in {"", ".", ".."}), unique=True, max_size=5))
def test_readers_survive(readers: list[str]) -> None:
    assert parse_sharing(sharing_value(readers)) == sorted(readers)
