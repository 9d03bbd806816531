"""The codec of bulk requests: round trips, and bodies that nobody honest would send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.protocol.extensions.bulk import (
    MAX_OPERATIONS,
    BulkError,
    Delete,
    Move,
    Operation,
    Put,
    Result,
    decode_operations,
    decode_results,
    encode_operations,
    encode_results,
)

BLOCK = 64
NAMES = st.text('abcé 日"\\', min_size=1, max_size=8)
SERIALS = st.none() | st.integers(0, (1 << 63) - 1)
OPERATIONS = st.one_of(
    st.builds(
        Put,
        name=NAMES,
        data=st.binary(max_size=BLOCK) | st.just(b"\n{}\n"),
        meta=st.dictionaries(st.text("abc-", min_size=1, max_size=5), st.text(min_size=1, max_size=9), max_size=3),
        if_version=SERIALS,
    ),
    st.builds(Delete, name=NAMES, if_version=SERIALS),
    st.builds(Move, name=NAMES, to=NAMES, if_version=SERIALS, if_to_version=SERIALS),
)


@given(st.lists(OPERATIONS, min_size=1, max_size=8))
def test_operations_survive_the_wire(operations: list[Operation]) -> None:
    assert decode_operations(encode_operations(operations), BLOCK) == operations


@given(
    st.lists(
        st.builds(
            Result,
            status=st.integers(200, 599),
            message=st.text(max_size=9),
            version=st.integers(0, (1 << 63) - 1),
            uuid=st.text(max_size=9),
            object_hash=st.text(max_size=9),
        ),
        max_size=8,
    )
)
def test_results_survive_the_wire(results: list[Result]) -> None:
    assert decode_results(encode_results(results), len(results)) == results
    with pytest.raises(BulkError):
        decode_results(encode_results(results), len(results) + 1)


@given(st.binary(max_size=100))
def test_any_other_bytes_are_an_error(body: bytes) -> None:
    with pytest.raises(BulkError):
        decode_operations(body, BLOCK)
    with pytest.raises(BulkError):
        decode_results(body, 1)


def put(**fields: object) -> dict[str, object]:
    return {"op": "put", "name": "n", "bytes": 2, **fields}


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [{"op": "put", "name": "n"}],
        [{"op": "copy", "name": "n", "to": "m"}],
        [{"name": "n", "bytes": 2}],
        [put(bytes=1)],
        [put(bytes=3)],
        [put(bytes=BLOCK + 1)],
        [put(bytes=1 << 70)],
        [put(bytes=4), put(bytes=-2)],
        [put(name="")],
        [put(name="../n")],
        [put(name="/n")],
        [put(name="n\n")],
        [put(name="n" * 1025)],
        [put(if_version=-1)],
        [put(if_version=1 << 63)],
        [put(type="")],
        [put(type="t\r\nX-Evil: 1")],
        [put(type="t" * 257)],
        [put(meta={"": "v"})],
        [put(meta={"k": "v" * 257})],
        [put(meta={"k" * 129: "v"})],
        [put(meta={str(number): "v" for number in range(33)})],
        [put(), {"op": "move", "name": "n", "to": ".."}],
        [put(), {"op": "move", "name": "n", "to": "m", "if_to_version": -1}],
        [put(), {"op": "delete", "name": ""}],
    ],
    ids=lambda operations: json.dumps(operations)[:80],
)
def test_operations_that_make_no_sense_are_refused(operations: list[object]) -> None:
    with pytest.raises(BulkError):
        decode_operations(json.dumps({"operations": operations}).encode() + b"\nxy", BLOCK)


def test_only_so_many_operations_are_taken() -> None:
    one = Delete(name="n")
    assert len(decode_operations(encode_operations([one] * MAX_OPERATIONS), BLOCK)) == MAX_OPERATIONS
    with pytest.raises(BulkError):
        decode_operations(encode_operations([one] * (MAX_OPERATIONS + 1)), BLOCK)


@pytest.mark.parametrize("wrong", [{"status": 99}, {"status": 600}, {"status": 201, "x_object_version": -1}, {}])
def test_results_that_make_no_sense_are_refused(wrong: object) -> None:
    with pytest.raises(BulkError):
        decode_results(json.dumps({"results": [wrong]}).encode(), 1)
