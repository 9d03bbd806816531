"""Frames and messages of the control socket: round trips, and refusal of everything else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.control import protocol
from blockfs.control.protocol import ProtocolError

U64 = st.integers(0, 2**64 - 1)
INO = st.integers(1, 2**63 - 1)
NAME = st.binary(min_size=1, max_size=255)
EXPECT = st.builds(protocol.Expect, ino=INO | st.none(), content_version=U64 | st.none())
REQUESTS = st.one_of(
    st.builds(protocol.Hello, version=st.integers(0, 9)),
    st.builds(protocol.Status),
    st.builds(protocol.Shutdown, seal=st.booleans()),
    st.builds(
        protocol.Changes,
        cursor=st.none() | st.builds(protocol.CursorMsg, mount_generation=U64, sequence=U64),
        after=st.integers(0, 2**63 - 1),
        limit=st.integers(1, protocol.MAX_PAGE_ROWS),
    ),
    st.builds(protocol.Hashes, items=st.lists(st.tuples(INO, U64))),
    st.builds(protocol.SetBlocks, handle=INO, first=st.integers(0, 2**40), ids=st.binary(max_size=200)),
    st.builds(protocol.InstallFile, handle=INO, parent=INO, name=NAME, expect=EXPECT),
    st.builds(
        protocol.MakeFiles,
        commit=st.booleans(),
        files=st.lists(
            st.builds(
                protocol.NewFile,
                parent=INO,
                name=NAME,
                size_bytes=st.integers(0, 2**63 - 1),
                mode=st.integers(0, 0o7777),
                uid=st.integers(0, 9),
                gid=st.integers(0, 9),
                mtime_ns=st.integers(-(2**63), 2**63 - 1),
                ids=st.binary(max_size=100),
            ),
            min_size=1,
            max_size=3,
        ),
    ),
    st.builds(protocol.ApplyMove, parent=INO, name=NAME, new_parent=INO, new_name=NAME, expect=EXPECT),
)

NEW_FILE = {"parent": 1, "name": b"f", "size_bytes": 0, "mode": 0, "uid": 0, "gid": 0, "mtime_ns": 0, "ids": b""}


def payload(frame: bytes) -> bytes:
    assert protocol.payload_size(frame[: protocol.HEADER_BYTES]) == len(frame) - protocol.HEADER_BYTES
    return frame[protocol.HEADER_BYTES :]


@given(REQUESTS)
def test_requests_survive_the_wire(request: protocol.ToServer) -> None:
    assert protocol.decode_to_server(payload(protocol.encode(request))) == request


@given(st.lists(INO), st.lists(st.binary(max_size=32) | st.none()))
def test_replies_survive_the_wire(gone: list[int], hashes: list[bytes | None]) -> None:
    cursor = protocol.CursorMsg(mount_generation=1, sequence=2**64 - 1)
    for reply in (
        protocol.ChangesReply(full=False, rows=[], gone=gone, cursor=cursor, after=0, more=False),
        protocol.HashesReply(hashes=hashes),
        protocol.Welcome(version=1, pid=2, takes=("makefiles", "later")),
        protocol.MadeFiles(
            files=[
                protocol.Applied(ino=2, version=3, content_version=3),
                protocol.Refused(reason="occupied"),
                protocol.MissingBlocks(ids=[bytes(32)]),
                protocol.ErrorReply(exit_code=17, errno=28, message="full"),
            ]
        ),
    ):
        assert protocol.decode_to_client(payload(protocol.encode(reply))) == reply


@given(st.binary(max_size=300))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    try:
        decoded = protocol.decode_to_server(data)
    except ProtocolError:
        return
    assert protocol.decode_to_server(payload(protocol.encode(decoded))) == decoded


def test_a_reply_is_no_request() -> None:
    with pytest.raises(ProtocolError, match="not a request"):
        protocol.decode_to_server(payload(protocol.encode(protocol.Done())))


def test_a_giant_frame_is_refused_by_its_header() -> None:
    with pytest.raises(ProtocolError, match="exceeds"):
        protocol.payload_size(b"\xff\xff\xff\xff")


def test_a_giant_message_is_never_sent() -> None:
    with pytest.raises(ProtocolError, match="exceeds"):
        protocol.encode(protocol.SetBlocks(handle=1, first=0, ids=bytes(protocol.MAX_FRAME_BYTES)))


def test_a_full_page_of_ids_fits_into_a_frame() -> None:
    protocol.encode(protocol.BlockListReply(size_bytes=2**62, ids=bytes(32 * protocol.MAX_PAGE_IDS)))


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "applymkdir", "parent": 0, "name": b"x", "mode": 0, "uid": 0, "gid": 0},
        {"type": "applymkdir", "parent": 1, "name": b"", "mode": 0, "uid": 0, "gid": 0},
        {"type": "applymkdir", "parent": 1, "name": b"x" * 256, "mode": 0, "uid": 0, "gid": 0},
        {"type": "applymkdir", "parent": 1, "name": b"x", "mode": 0o10000, "uid": 0, "gid": 0},
        {"type": "makefiles", "files": []},
        {"type": "makefiles", "files": [NEW_FILE | {"ids": bytes(32 * 257)}]},
        {"type": "makefiles", "files": [NEW_FILE | {"parent": 0}]},
        {"type": "makefiles", "files": [NEW_FILE] * 1025},
        {"type": "changes", "limit": protocol.MAX_PAGE_ROWS + 1},
        {"type": "blocklistpage", "ino": 1, "content_version": 1, "first": -1, "count": 1},
    ],
)
def test_values_that_no_tree_can_hold_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode_to_server(msgspec.msgpack.encode(fields))


def test_a_full_list_of_new_files_fits_into_a_frame() -> None:
    file = protocol.NewFile(
        parent=1, name=b"n" * 255, size_bytes=2**62, mode=0, uid=0, gid=0, mtime_ns=0, ids=bytes(32 * 256)
    )
    protocol.encode(protocol.MakeFiles(files=[file] * protocol.MOST_MADE))


def test_a_server_of_before_takes_nothing_that_came_later() -> None:
    data = msgspec.msgpack.encode({"type": "welcome", "version": 1, "pid": 2})
    assert protocol.decode_to_client(data) == protocol.Welcome(version=1, pid=2, takes=())


def test_unknown_keys_are_ignored_so_that_fields_can_be_added() -> None:
    data = msgspec.msgpack.encode({"type": "flush", "priority": 3})
    assert protocol.decode_to_server(data) == protocol.Flush()
