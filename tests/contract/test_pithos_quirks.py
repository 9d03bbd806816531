"""The Pithos client against a server that behaves as badly as Synnefo's can: races, faults, wrong answers."""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio

from blockfs.blocks.hashing import block_id
from syncer.core.model import Kind, Meta
from syncer.errors import (
    AuthError,
    ConflictOnRemoteError,
    CorruptionError,
    NoSpaceError,
    NotFoundError,
    RemoteUnavailableError,
    SyncerError,
)
from syncer.protocol.headers import encode_meta
from syncer.remote.http import BadReplyError, HttpSettings
from syncer.remote.pithos import PithosClient, open_pithos
from syncer.remote.retry import RetryPolicy
from tests.contract.remotes import BLOCK, META, QUICK, FakeRemote, fetch, must_head, path, store
from tests.fakes.pithos import FakePithos, Fault, FaultKind
from tests.fakes.pithos_store import Container

TLS = Path(__file__).parents[1] / "fakes" / "tls"


def content(seed: int, size: int) -> bytes:
    return hashlib.shake_128(b"quirk %d" % seed).digest(size)


@pytest.fixture(scope="module")
def server() -> Iterator[FakePithos]:
    with FakePithos(block_size=BLOCK) as fake:
        yield fake


@pytest.fixture
def remote(server: FakePithos) -> FakeRemote:
    found = FakeRemote(server)
    found.box_name = f"box{len(server.store.containers)}"
    server.store.blocks.clear()
    server.requests.clear()
    return found


def play(remote: FakeRemote, scenario: Callable[[PithosClient], Awaitable[None]]) -> None:
    async def main() -> None:
        client = remote.client()
        await client.create_container()
        await scenario(client)
        await client.close()

    trio.run(main)


def box(remote: FakeRemote) -> Container:
    return remote.server.container(name=remote.box_name)


def write(remote: FakeRemote, name: str, data: bytes, kind: str = "application/octet-stream") -> None:
    """Somebody else's write, straight into the server."""
    remote.server.store.put_body(box(remote), name, data, kind, {})


def intrude_and_drop(remote: FakeRemote, method: str, intrude: Callable[[], object]) -> None:
    """The next such request is lost, and somebody else writes at that moment."""

    def on_request(seen: str, _target: str) -> None:
        if seen == method:
            remote.server.on_request = None
            intrude()

    remote.server.on_request = on_request
    remote.server.inject(Fault(FaultKind.DROP_BEFORE, method=method))


# --- races that Synnefo's conditions do not prevent


@pytest.mark.parametrize("mine", [b"mine", content(1, 3 * BLOCK)], ids=["small", "large"])
def test_an_update_that_slipped_in_is_reported_and_readable(remote: FakeRemote, mine: bytes) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", b"base")
        base = await must_head(client, "file")
        if len(mine) > BLOCK:
            await client.put_blocks([mine[at : at + BLOCK] for at in range(0, len(mine), BLOCK)])
        remote.server.store.between = lambda name: write(remote, name, b"theirs")
        done = await store(client, "file", mine, replace=base)
        (foreign,) = done.foreign
        assert (foreign.path, foreign.kind) == (b"file", Kind.FILE)
        blocks = await client.block_list(foreign.path, foreign.tag)
        assert await client.read_block(foreign.path, foreign.tag, blocks, 0) == b"theirs"
        assert await fetch(client, await must_head(client, "file")) == mine

    play(remote, scenario)


def test_a_create_that_slipped_in_is_reported(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        remote.server.store.between = lambda name: write(remote, name, b"theirs")
        done = await store(client, "file", b"mine")
        (foreign,) = done.foreign
        assert foreign.tag.etag == block_id(b"theirs").hex()
        assert foreign.tag.version < done.tag.version

    play(remote, scenario)


def test_an_earlier_life_of_a_name_is_no_foreign_version(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        write(remote, "file", b"earlier")
        remote.server.store.delete(box(remote), "file")
        assert (await store(client, "file", b"mine")).foreign == ()

    play(remote, scenario)


def test_a_change_between_check_and_delete_is_put_back(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")
        remote.server.store.between = lambda name: write(remote, name, b"theirs")
        with pytest.raises(ConflictOnRemoteError):
            await client.delete(path("file"), made.tag)
        assert await fetch(client, await must_head(client, "file")) == b"theirs"
        assert list(box(remote).live()) == ["file"]

    play(remote, scenario)


def test_appended_nuls_between_check_and_delete_are_put_back(remote: FakeRemote) -> None:
    """If-Match can't see them: only the size of what was moved away tells."""

    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")
        remote.server.store.between = lambda name: write(remote, name, b"base" + bytes(9))
        with pytest.raises(ConflictOnRemoteError):
            await client.delete(path("file"), made.tag)
        assert await fetch(client, await must_head(client, "file")) == b"base" + bytes(9)

    play(remote, scenario)


def test_what_can_not_go_back_to_its_name_goes_beside_it(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")

        def intrude(name: str) -> None:
            write(remote, name, b"theirs")
            remote.server.inject(Fault(FaultKind.STATUS_BEFORE, method="PUT", containing="/file", status=412))

        remote.server.store.between = intrude
        with pytest.raises(ConflictOnRemoteError):
            await client.delete(path("file"), made.tag)
        (name,) = box(remote).live()
        assert name.startswith("file (recovered ")
        assert await fetch(client, await must_head(client, name)) == b"theirs"

    play(remote, scenario)


def test_a_target_that_appeared_during_a_move_is_reported(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"moving")
        remote.server.store.between = lambda _name: write(remote, "target", b"theirs")
        done = await client.move(path("file"), path("target"), made.tag)
        (foreign,) = done.foreign
        blocks = await client.block_list(foreign.path, foreign.tag)
        assert await client.read_block(foreign.path, foreign.tag, blocks, 0) == b"theirs"
        assert await fetch(client, await must_head(client, "target")) == b"moving"

    play(remote, scenario)


def test_a_source_that_changed_during_a_move_is_a_conflict_and_stays_readable(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"moving")
        remote.server.store.between = lambda name: write(remote, name, b"theirs")
        with pytest.raises(ConflictOnRemoteError):
            await client.move(path("file"), path("target"), made.tag)
        assert await fetch(client, await must_head(client, "target")) == b"theirs"

    play(remote, scenario)


def test_a_lost_write_is_not_mistaken_for_anothers_with_the_same_hash(remote: FakeRemote) -> None:
    """Only the trailing NULs tell them apart."""

    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")
        base = await must_head(client, "file")
        items = {f"x-object-meta-{key}": value for key, value in encode_meta(META).items()}
        theirs = b"mine" + bytes(3)

        def intrude() -> None:
            remote.server.store.put_body(box(remote), "file", theirs, "application/octet-stream", items)

        intrude_and_drop(remote, "PUT", intrude)
        with pytest.raises(ConflictOnRemoteError):
            await store(client, "file", b"mine", replace=base)
        assert await fetch(client, await must_head(client, "file")) == theirs
        assert made.tag == base.tag

    play(remote, scenario)


def test_a_lost_metadata_change_is_not_mistaken_for_anothers(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"data")
        theirs = {"x-object-meta-mode": "600"}

        def intrude() -> None:
            remote.server.store.change_meta(box(remote), "file", theirs, update=True)

        intrude_and_drop(remote, "POST", intrude)
        with pytest.raises(ConflictOnRemoteError):
            await client.set_meta(path("file"), Meta(mode=0o755), made.tag)
        assert (await must_head(client, "file")).meta == Meta(mode=0o600, mtime_ns=META.mtime_ns)

    play(remote, scenario)


# --- deletions that a crash left half done


def test_a_half_done_deletion_is_finished_by_the_next_listing(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"base")
        remote.server.inject(Fault(FaultKind.STATUS_BEFORE, method="DELETE", times=100))
        with pytest.raises(RemoteUnavailableError):
            await client.delete(path("file"), made.tag)
        (hidden,) = box(remote).live()
        assert hidden.startswith(".blocksync/trash/")
        remote.server.clear_faults()
        assert (await client.list_objects()).objects == []
        assert not box(remote).live()

    play(remote, scenario)


def test_a_foreign_version_in_the_hidden_trash_comes_back(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "folder/file", b"base")
        base = await must_head(client, "folder/file")
        write(remote, "folder/file", b"theirs")
        hidden = f".blocksync/trash/{base.tag.uuid}.{base.tag.size_bytes}.{base.tag.etag}/folder/file"
        remote.server.store.move(box(remote), "folder/file", hidden)
        await client.list_objects()
        assert [stat.path for stat in (await client.list_objects()).objects] == [b"folder/file"]
        assert await fetch(client, await must_head(client, "folder/file")) == b"theirs"

    play(remote, scenario)


def test_other_reserved_names_are_neither_listed_nor_touched(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        for name in (".blocksync/other", ".blocksync/trash/unknown", f".blocksync/trash/u.1.{'0' * 64}"):
            write(remote, name, b"?")
        before = sorted(box(remote).live())
        listing = await client.list_objects()
        assert (listing.objects, listing.refused) == ([], [])
        assert sorted(box(remote).live()) == before

    play(remote, scenario)


# --- names and kinds that we don't take


def test_unsafe_names_are_refused_one_by_one_and_the_rest_is_listed(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        unsafe = ["../x", "a/../b", "./a", "/lead", "trail/", "a//b", "nul\0", "bell\a", "\x85", "x" * 256, ".."]
        for name in [*unsafe, "fine"]:
            write(remote, name, b"data")
        listing = await client.list_objects()
        assert [stat.path for stat in listing.objects] == [b"fine"]
        assert sorted(refused.name for refused in listing.refused) == sorted(unsafe)
        assert all(refused.reason for refused in listing.refused)

    play(remote, scenario)


def test_objects_that_contradict_their_type_are_refused(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        write(remote, "folder", b"content", "application/directory")
        write(remote, "link", b"x" * 4096, "application/x-symlink")
        write(remote, "empty link", b"", "application/x-symlink")
        write(remote, "old folder", b"", "application/folder; charset=utf-8")
        listing = await client.list_objects()
        assert [(stat.path, stat.kind) for stat in listing.objects] == [(b"old folder", Kind.DIRECTORY)]
        assert sorted(refused.name for refused in listing.refused) == ["empty link", "folder", "link"]

    play(remote, scenario)


# --- wrong bytes


@pytest.mark.parametrize("kind", [FaultKind.WRONG_BYTES, FaultKind.TRUNCATE, FaultKind.DROP_AFTER])
def test_a_damaged_block_is_fetched_again(remote: FakeRemote, kind: FaultKind) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 5 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        remote.server.inject(Fault(kind, method="GET", containing="/file?version", times=2))
        assert await fetch(client, stat) == data

    play(remote, scenario)


def test_a_reply_that_is_longer_than_asked_for_is_not_read_to_its_end(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", content(1, 50 * BLOCK))
        stat = await must_head(client, "file")
        blocks = await client.block_list(stat.path, stat.tag)
        remote.server.inject(Fault(FaultKind.WHOLE_OBJECT, method="GET"))
        with pytest.raises(BadReplyError, match="longer than 4096 bytes"):
            await client.read_block(stat.path, stat.tag, blocks, 3)
        assert await client.read_block(stat.path, stat.tag, blocks, 3)

    play(remote, scenario)


def test_a_whole_object_for_a_range_that_is_all_of_it_is_fine(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 5 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        remote.server.inject(Fault(FaultKind.WHOLE_OBJECT, method="GET", containing="/file?version"))
        assert await fetch(client, stat) == data

    play(remote, scenario)


def test_a_block_that_stays_wrong_is_corruption(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", content(1, 5 * BLOCK))
        stat = await must_head(client, "file")
        remote.server.inject(Fault(FaultKind.WRONG_BYTES, method="GET", containing="/file?version", times=100))
        with pytest.raises(CorruptionError, match="block 0"):
            await fetch(client, stat)
        remote.server.clear_faults()

    play(remote, scenario)


def test_a_wrong_hashmap_is_asked_for_again_and_never_believed(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 5 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        remote.server.inject(Fault(FaultKind.WRONG_HASHMAP, method="GET", containing="hashmap", times=1))
        assert await fetch(client, stat) == data
        remote.server.inject(Fault(FaultKind.WRONG_HASHMAP, method="GET", containing="hashmap", times=100))
        with pytest.raises(CorruptionError, match="does not belong"):
            await fetch(client, stat)
        remote.server.clear_faults()

    play(remote, scenario)


def test_content_is_read_at_its_version_while_others_replace_it(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 3 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        blocks = await client.block_list(stat.path, stat.tag)
        write(remote, "file", content(2, 3 * BLOCK))
        assert await client.read_block(stat.path, stat.tag, blocks, 1) == data[BLOCK : 2 * BLOCK].rstrip(b"\0")

    play(remote, scenario)


def test_a_version_that_is_gone_is_a_conflict(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", content(1, 3 * BLOCK))
        stat = await must_head(client, "file")
        blocks = await client.block_list(stat.path, stat.tag)
        del box(remote).history["file"]
        with pytest.raises(ConflictOnRemoteError):
            await client.block_list(stat.path, stat.tag)
        with pytest.raises(ConflictOnRemoteError):
            await client.read_block(stat.path, stat.tag, blocks, 0)

    play(remote, scenario)


def test_blocks_that_vanish_are_sent_again(remote: FakeRemote) -> None:
    """A second 409 after the POSTs is possible; a server that keeps nothing ends in a clear error."""

    async def scenario(client: PithosClient) -> None:
        data = content(1, 4 * BLOCK)
        remote.server.inject(Fault(FaultKind.FORGET_BLOCKS, method="POST"))
        await store(client, "file", data)
        assert await fetch(client, await must_head(client, "file")) == data
        remote.server.inject(Fault(FaultKind.FORGET_BLOCKS, method="POST", times=100))
        with pytest.raises(BadReplyError, match="rounds"):
            await store(client, "other", content(2, 4 * BLOCK))
        remote.server.clear_faults()

    play(remote, scenario)


@pytest.mark.parametrize("kind", [FaultKind.EMPTY_BODY, FaultKind.WRONG_IDS])
def test_a_block_post_is_believed_only_with_the_right_ids(remote: FakeRemote, kind: FaultKind) -> None:
    async def scenario(client: PithosClient) -> None:
        remote.server.inject(Fault(kind, method="POST"))
        with pytest.raises(BadReplyError):
            await client.put_blocks([b"one", b"two"])

    play(remote, scenario)


def test_a_short_block_travels_without_padding(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        before = client.counters.snapshot()
        await client.put_blocks([b"short", content(1, BLOCK)])
        assert client.counters.since(before).bytes_sent == BLOCK + len(b"short")

    play(remote, scenario)


def test_a_server_with_md5_etags_is_understood(remote: FakeRemote) -> None:
    """PITHOS_UPDATE_MD5: ETag and conditions are MD5, content identity is X-Object-Hash."""

    async def scenario(client: PithosClient) -> None:
        made = await store(client, "file", b"one")
        assert made.tag.etag == block_id(b"one").hex()
        await store(client, "file", content(1, 2 * BLOCK), replace=await must_head(client, "file"))
        stat = await must_head(client, "file")
        await client.move(path("file"), path("moved"), stat.tag)
        await client.delete(path("moved"), (await must_head(client, "moved")).tag)
        assert not box(remote).live()

    remote.server.store.update_md5 = True
    try:
        play(remote, scenario)
    finally:
        remote.server.store.update_md5 = False


# --- listings


def test_a_listing_that_changes_between_its_pages_is_begun_anew(remote: FakeRemote) -> None:
    """A rename from a later to an earlier page would look like a deletion."""

    async def scenario(client: PithosClient) -> None:
        for name in "bcdef":
            write(remote, name, name.encode())
        moves = iter([("f", "a")])

        def between_pages(method: str, target: str) -> None:
            if "marker=" in target and (move := next(moves, None)):
                remote.server.store.move(box(remote), *move)

        remote.server.on_request = between_pages
        listing = await client.list_objects()
        assert [stat.path for stat in listing.objects] == [b"a", b"b", b"c", b"d", b"e"]

    limit, remote.server.listing_limit = remote.server.listing_limit, 2
    try:
        play(remote, scenario)
    finally:
        remote.server.listing_limit, remote.server.on_request = limit, None


@pytest.mark.parametrize("kind", [FaultKind.TRUNCATE, FaultKind.DROP_AFTER, FaultKind.STATUS_BEFORE])
def test_a_broken_page_is_fetched_again_and_none_is_left_out(remote: FakeRemote, kind: FaultKind) -> None:
    async def scenario(client: PithosClient) -> None:
        for name in "abcde":
            write(remote, name, b"")
        remote.server.inject(Fault(kind, method="GET", containing="marker=d"))
        assert len((await client.list_objects()).objects) == 5

    limit, remote.server.listing_limit = remote.server.listing_limit, 2
    try:
        play(remote, scenario)
    finally:
        remote.server.listing_limit = limit


def test_a_page_that_never_comes_is_an_error_and_no_listing(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        for name in "abcde":
            write(remote, name, b"")
        remote.server.inject(Fault(FaultKind.STATUS_BEFORE, method="GET", containing="marker=d", times=100))
        with pytest.raises(RemoteUnavailableError):
            await client.list_objects()
        remote.server.clear_faults()

    limit, remote.server.listing_limit = remote.server.listing_limit, 2
    try:
        play(remote, scenario)
    finally:
        remote.server.listing_limit = limit


# --- errors


ERRORS: list[tuple[int, type[SyncerError], int]] = [
    (401, AuthError, 12),
    (403, AuthError, 12),
    (404, NotFoundError, 10),
    (413, NoSpaceError, 17),
    (507, NoSpaceError, 17),
    (400, BadReplyError, 13),
    (302, BadReplyError, 13),
    (500, RemoteUnavailableError, 13),
    (503, RemoteUnavailableError, 13),
]


@pytest.mark.parametrize(("status", "error", "exit_code"), ERRORS, ids=[str(row[0]) for row in ERRORS])
def test_a_status_becomes_its_error_with_the_server_named(
    remote: FakeRemote, status: int, error: type[SyncerError], exit_code: int
) -> None:
    async def scenario(client: PithosClient) -> None:
        remote.server.inject(Fault(FaultKind.STATUS_BEFORE, method="PUT", times=100, status=status))
        with pytest.raises(error, match=r"127\.0\.0\.1") as caught:
            await store(client, "file", b"data")
        assert caught.value.exit_code == exit_code
        remote.server.clear_faults()
        assert await client.head(path("file")) is None

    play(remote, scenario)


def test_a_quota_of_the_server_is_no_space(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        with pytest.raises(NoSpaceError, match="quota exceeded"):
            await store(client, "file", content(1, 3 * BLOCK))

    remote.server.store.quota_bytes = 2 * BLOCK
    try:
        play(remote, scenario)
    finally:
        remote.server.store.quota_bytes = None


def test_a_wrong_token_is_an_auth_error_and_is_not_repeated(remote: FakeRemote) -> None:
    async def main() -> None:
        client = open_pithos(remote.url, "wrong", policy=QUICK)
        with pytest.raises(AuthError, match="token"):
            await client.container_info()
        assert client.counters.requests == 1
        await client.close()

    trio.run(main)


@pytest.mark.parametrize("operation", ["container_info", "list_objects"])
def test_a_web_page_instead_of_an_answer_is_a_clear_error(remote: FakeRemote, operation: str) -> None:
    async def scenario(_client: PithosClient) -> None:
        client = remote.client()
        remote.server.inject(Fault(FaultKind.NOT_JSON, containing=f"/{remote.box_name}", times=100))
        with pytest.raises(BadReplyError, match="Pithos server"):
            await getattr(client, operation)()
        remote.server.clear_faults()
        await client.close()

    play(remote, scenario)


def test_a_refused_connection_names_the_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    async def main() -> None:
        client = open_pithos(f"pithos+http://127.0.0.1:{port}/v1/a/c", "token", policy=QUICK)
        with pytest.raises(RemoteUnavailableError, match=rf"127\.0\.0\.1:{port} is unreachable: Connection refused"):
            await client.container_info()
        assert client.counters.requests == QUICK.attempts
        await client.close()

    trio.run(main)


def test_a_server_that_never_answers_runs_into_the_time_out() -> None:
    async def main(port: int) -> None:
        client = open_pithos(
            f"pithos+http://127.0.0.1:{port}/v1/a/c",
            "token",
            policy=RetryPolicy(attempts=2, first_delay_s=0.001),
            settings=HttpSettings(read_timeout_s=0.05),
        )
        with pytest.raises(RemoteUnavailableError, match="timed out"):
            await client.container_info()
        assert client.counters.requests == 2
        await client.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        trio.run(main, silent.getsockname()[1])


def test_the_deadline_ends_a_call_that_the_time_outs_do_not() -> None:
    async def main(port: int) -> None:
        client = open_pithos(
            f"pithos+http://127.0.0.1:{port}/v1/a/c",
            "token",
            policy=RetryPolicy(deadline_s=0.05),
            settings=HttpSettings(read_timeout_s=2),
        )
        with pytest.raises(RemoteUnavailableError, match=r"no answer within 0\.05 s"):
            await client.container_info()
        await client.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        trio.run(main, silent.getsockname()[1])


def test_https_to_a_server_without_tls_is_unreachable(remote: FakeRemote) -> None:
    async def main() -> None:
        url = remote.url.replace("pithos+http:", "pithos+https:")
        client = open_pithos(url, "token", policy=QUICK)
        with pytest.raises(RemoteUnavailableError, match="TLS"):
            await client.container_info()
        await client.close()

    trio.run(main)


def test_tls_is_verified_against_the_given_authority_and_never_skipped() -> None:
    certificate, key = TLS / "server.pem", TLS / "server.key"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def main(server: FakePithos, host: str, ca_file: str | None) -> int:
        url = server.url().replace("pithos+http:", "pithos+https:").replace("127.0.0.1", host)
        client = open_pithos(url, server.token, policy=QUICK, settings=HttpSettings(ca_file=ca_file))
        try:
            return (await client.create_container()).block_size
        finally:
            await client.close()

    with FakePithos(block_size=BLOCK, tls=context) as server:
        assert trio.run(main, server, "127.0.0.1", str(certificate)) == BLOCK
        for host, ca_file in (("127.0.0.1", None), ("localhost", str(certificate))):
            with pytest.raises(RemoteUnavailableError, match=r"TLS: .*certificate verify failed"):
                trio.run(main, server, host, ca_file)


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "ümlaut"])
def test_a_token_that_can_not_be_a_header_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(AuthError, match="token") as caught:
        open_pithos("pithos+http://h/v1/a/c", token)
    assert not token or token not in str(caught.value)


def test_metadata_of_a_listing_without_any_are_fetched_on_demand(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        await store(client, "file", b"data")
        await client.put_small(path("link"), Kind.SYMLINK, b"target", Meta(), None)
        file, link = (await client.list_objects()).objects
        assert (file.meta, link.target) == (None, None)
        assert (await client.resolve(file)).meta == META
        assert (await client.resolve(link)).target == b"target"

    play(remote, scenario)


def test_adjacent_blocks_come_by_one_request(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        data = content(1, 30 * BLOCK)
        await store(client, "file", data)
        stat = await must_head(client, "file")
        before = client.counters.snapshot()
        await fetch(client, stat)
        spent = client.counters.since(before)
        assert (spent.requests, spent.blocks_received) == (2, 30)
        assert spent.bytes_received >= len(data)

    play(remote, scenario)


def test_a_small_file_costs_one_writing_request(remote: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        before = client.counters.snapshot()
        await store(client, "file", b"data")
        spent = client.counters.since(before)
        assert (spent.mutating_requests, spent.bytes_sent, spent.blocks_sent) == (1, 4, 1)

    play(remote, scenario)
