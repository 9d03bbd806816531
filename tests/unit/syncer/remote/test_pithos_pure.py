"""Requests and replies of the Pithos client, without a server."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.core.model import NO_META, Kind, Meta, RelPath, RemoteTag
from syncer.errors import CorruptionError, NoSpaceError, UnsafeNameError
from syncer.remote.container.conditions import same_version
from syncer.remote.container.replies import Judge
from syncer.remote.container.requests import Requests, etag_condition, object_name, version_condition
from syncer.remote.container.runs import runs
from syncer.remote.http.transport import BadReplyError, Reply, ReplyLostError, Request
from syncer.remote.pithos.creates import OwnSerials
from syncer.remote.pithos.upload import batches, first_places
from syncer.remote.synnefo.plain import parse_trash_name, trash_name
from syncer.remote.url import parse_url

URL = parse_url("pithos+http://h:1/v1/alice/vms")
MAKE = Requests(URL)
JUDGE = Judge(URL.origin, str(URL))
TAG = RemoteTag(uuid="u-1", version=7, etag="ab" * 32, size_bytes=9000)
ASKED = Request(method="PUT", target="/v1/alice/vms/f")


def reply(status: int, body: bytes = b"", **headers: str) -> Reply:
    return Reply(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=body)


# --- requests


@given(st.sets(st.integers(0, 60)), st.integers(0, 61 * 10), st.integers(1, 100))
def test_runs_cover_each_block_once_in_order_and_stay_short(indexes: set[int], size: int, most: int) -> None:
    wanted = sorted(index for index in indexes if index * 10 < size)
    found = runs(wanted, size, 10, most)
    assert [run.first + at for run in found for at in range(run.count)] == wanted
    for run in found:
        assert run.count == 1 or run.count * 10 <= most
        assert run.start == run.first * 10
        assert run.start + run.length_bytes == min((run.first + run.count) * 10, size)
    full = [run for run, after in itertools.pairwise(found) if run.first + run.count == after.first]
    assert all((run.count + 1) * 10 > most for run in full)


def test_block_posts_have_exactly_the_type_that_stores() -> None:
    request = MAKE.put_blocks([b"ab", b"c"], 4)
    assert (request.method, request.target) == ("POST", "/v1/alice/vms?update&format=json")
    assert (dict(request.headers), request.body) == ({"Content-Type": "application/octet-stream"}, [b"ab\0\0", b"c"])
    assert MAKE.put_blocks([b""], 4).body == [b"\0"]


def test_metadata_and_condition_go_with_every_put() -> None:
    blocks = BlockList(block_size=4, size_bytes=1, ids=block_id(b"x"))
    meta = Meta(mode=0o644, mtime_ns=12)
    for request in (
        MAKE.put_hashmap("f", blocks, meta, version_condition(TAG)),
        MAKE.put_body("f", Kind.FILE, b"x", meta, version_condition(TAG)),
    ):
        assert request.headers["X-Object-Meta-Mode"] == "644"
        assert request.headers["X-Object-Meta-Mtime-Ns"] == "12"
        assert request.headers["X-If-Object-Version"] == "7"
        assert request.headers["Content-Type"] == "application/octet-stream"
    assert version_condition(None) == {"X-If-Object-Version": "0"}
    assert etag_condition(None) == {"If-None-Match": "*"}
    assert etag_condition("e") == {"If-Match": '"e"'}


def test_reads_are_pinned_to_their_version() -> None:
    (run,) = runs([1, 2], 9000, 4096, 1 << 20)
    request = MAKE.read_run("f", 7, run)
    assert request.target == "/v1/alice/vms/f?version=7"
    assert request.headers["Range"] == "bytes=4096-8999"
    assert request.max_reply_bytes == 4904
    assert MAKE.hashmap("f", TAG, 4096).target == "/v1/alice/vms/f?hashmap&format=json&version=7"


def test_a_kind_travels_as_its_content_type() -> None:
    types = {kind: MAKE.put_body("f", kind, b"", NO_META, {}).headers["Content-Type"] for kind in Kind}
    assert types[Kind.DIRECTORY] == "application/directory"
    assert len(set(types.values())) == 3


@pytest.mark.parametrize("name", [b".blocksync/x", b".blocksync/park", b"..", b"a/../b", b"/x", b"\xff"])
def test_unsafe_and_reserved_paths_have_no_object_name(name: bytes) -> None:
    with pytest.raises(UnsafeNameError):
        object_name(RelPath(name))


def test_parked_paths_have_an_object_name() -> None:
    assert object_name(RelPath(b".blocksync/park/3-x")) == ".blocksync/park/3-x"


def test_the_directory_of_the_share_s_key_has_an_object_name() -> None:
    assert object_name(RelPath(b".blocksync")) == ".blocksync"


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=400))
def test_a_trash_name_tells_what_waits_there(name: str) -> None:
    assert parse_trash_name(trash_name(name, TAG)) == (name, "u-1", 9000, "ab" * 32)


def test_a_name_that_is_too_long_for_the_trash_is_left_out() -> None:
    hidden = trash_name("x" * 1000, TAG)
    assert len(hidden) <= 1024
    assert parse_trash_name(hidden) == ("", "u-1", 9000, "ab" * 32)
    assert parse_trash_name(".blocksync/trash/other") is None
    assert parse_trash_name("file") is None


# --- replies


def test_a_list_of_missing_blocks_and_a_conflict_are_told_apart() -> None:
    ids = (block_id(b"a"), block_id(b"b"))
    body = b'["%s","%s"]' % (ids[0].hex().encode(), ids[1].hex().encode())
    assert JUDGE.missing(ASKED, reply(409, body)) == ids
    with pytest.raises(BadReplyError, match="in the way"):
        JUDGE.missing(ASKED, reply(409, b'{"conflict":{"message":"in the way","code":409,"details":""}}'))
    for nothing in (b"[]", b"", b"<html>", b"{}", b'["zz"]'):
        with pytest.raises(BadReplyError):
            JUDGE.missing(ASKED, reply(409, nothing))


def test_the_junk_version_of_a_move_is_no_version() -> None:
    assert JUDGE.written(reply(201, x_object_version="%28%5B9%5D, 5L, 5L%29")).version is None
    written = JUDGE.written(reply(201, x_object_version="12", etag='"abc"', x_object_uuid="u"))
    assert (written.version, written.etag, written.uuid) == (12, "abc", "u")


def test_a_message_of_the_server_is_passed_on_in_moderation() -> None:
    body = b'{"requestEntityTooLarge":{"message":"%s","code":413,"details":""}}' % (b"Quota " * 200)
    failure = JUDGE.failure(ASKED, reply(413, body))
    assert isinstance(failure, NoSpaceError)
    assert "Quota Quota" in str(failure)
    assert len(str(failure)) < 600
    assert isinstance(JUDGE.failure(ASKED, reply(503)), ReplyLostError)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-container-block-size": "big", "x-container-block-hash": "sha256"},
        {"x-container-block-size": "0", "x-container-block-hash": "sha256"},
        {"x-container-block-size": "65536", "x-container-block-hash": "md5"},
        {"x-container-block-size": "65536"},
    ],
)
def test_a_container_whose_blocks_we_can_not_make_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadReplyError):
        JUDGE.container_info(Reply(status=204, headers=headers, body=b""))


def test_extensions_and_identity_are_read_where_announced() -> None:
    plain = JUDGE.container_info(reply(204, x_container_block_size="4096", x_container_block_hash="SHA256"))
    assert (plain.identity, plain.atomic, plain.extensions) == (None, False, frozenset())
    ours = JUDGE.container_info(
        reply(
            204,
            x_container_block_size="4096",
            x_container_block_hash="sha256",
            x_container_identity="life-1",
            x_blocksync_atomic="1",
            x_blocksync_extensions="Changes, hashmap-delta",
        )
    )
    assert (ours.identity, ours.atomic) == ("life-1", True)
    assert ours.extensions == {"changes", "hashmap-delta"}


def test_a_block_list_of_another_size_is_corruption_even_with_the_right_hash() -> None:
    """Trailing NULs: the hash alone does not name content."""
    body = b'{"bytes":5000,"block_size":4096,"hashes":["%s","%s"]}' % ((ZERO_BLOCK.hex().encode(),) * 2)
    root = BlockList(block_size=4096, size_bytes=5000, ids=ZERO_BLOCK * 2).object_hash.hex()
    right = RemoteTag(uuid="u", version=1, etag=root, size_bytes=5000)
    wrong = RemoteTag(uuid="u", version=1, etag=root, size_bytes=8192)
    assert len(JUDGE.block_list(reply(200, body), RelPath(b"f"), right, 4096)) == 2
    with pytest.raises(CorruptionError, match="does not belong"):
        JUDGE.block_list(reply(200, body), RelPath(b"f"), wrong, 4096)


# --- conditions and batches


def test_a_version_is_the_same_only_with_its_number_and_uuid() -> None:
    other_life = RemoteTag(uuid="u-2", version=7, etag=TAG.etag, size_bytes=9000)
    untold = RemoteTag(uuid="", version=7, etag=TAG.etag, size_bytes=9000)
    later = RemoteTag(uuid="u-1", version=8, etag=TAG.etag, size_bytes=9000)
    assert same_version(TAG, TAG)
    assert same_version(TAG, untold)
    assert same_version(None, None)
    assert not same_version(TAG, other_life)
    assert not same_version(TAG, later)
    assert not same_version(TAG, None)
    assert not same_version(None, TAG)


def test_each_wanted_block_is_sent_from_its_first_place() -> None:
    a, b = block_id(b"a"), block_id(b"b")
    blocks = BlockList(block_size=1, size_bytes=4, ids=b + a + b + ZERO_BLOCK)
    assert first_places(blocks, [a, b]) == {a: 1, b: 0}
    assert first_places(blocks, [block_id(b"c")]) == {}


def test_batches_are_bounded_in_bytes_and_count() -> None:
    assert [len(batch) for batch in batches(range(130), 65536)] == [64, 64, 2]
    assert [len(batch) for batch in batches(range(3), 4 << 20)] == [1, 1, 1]
    assert [len(batch) for batch in batches(range(65), 4096)] == [64, 1]


def test_a_damaged_block_of_the_server_is_no_reason_to_try_again() -> None:
    """Breaks when it counts as a lost reply: a cycle would ask for minutes, and then end for all files."""
    damaged = JUDGE.failure(
        ASKED, reply(500, b'{"corruptBlock":{"message":"A block is damaged","code":500,"details":""}}')
    )
    assert isinstance(damaged, CorruptionError)
    assert not damaged.retryable
    assert "A block is damaged" in str(damaged)
    other = JUDGE.failure(ASKED, reply(500, b'{"internalServerError":{"message":"x","code":500,"details":""}}'))
    assert isinstance(other, ReplyLostError)


@given(
    steps=st.lists(st.booleans(), max_size=30),
    since=st.integers(0, 30),
    version=st.integers(0, 30),
)
def test_all_versions_between_two_are_ours_only_if_each_is(steps: list[bool], since: int, version: int) -> None:
    serials, ours = OwnSerials(), set()
    for at, is_ours in enumerate(steps, 1):
        if is_ours:
            serials.got(at)
            ours.add(at)
    assert serials.newest == max(ours, default=0)
    expected = 0 < since < version and all(serial in ours for serial in range(since + 1, version))
    assert serials.all_between(since, version) == expected


def test_versions_that_are_forgotten_count_as_those_of_others() -> None:
    serials = OwnSerials()
    for version in range(1, 200_000):
        serials.got(version)
    assert not serials.all_between(1, 199_999)
    assert serials.all_between(199_000, 199_999)
