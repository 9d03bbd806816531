"""The control socket of a real mount: what the syncer relies on."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.control import protocol
from blockfs.control.client import ControlClient, RequestError
from blockfs.control.protocol import Applied, Expect, NodeRow, Refused
from blockfs.runtime.linux import syncfs
from tests.conftest import Mounted

BLOCK = 65536
ROOT = 1


@pytest.fixture
def client(mounted: Mounted) -> Iterator[ControlClient]:
    with ControlClient(os.fsencode(mounted.volume)) as connected:
        yield connected


def flush(mounted: Mounted, client: ControlClient) -> None:
    syncfs(os.fsencode(mounted.path))
    client.flush()


def rows_by_name(rows: list[NodeRow]) -> dict[bytes, NodeRow]:
    return {name: row for row in rows for _, name in row.places}


def row_of(client: ControlClient, name: bytes) -> NodeRow:
    return rows_by_name(client.changes(None)[1])[name]


def stored(mounted: Mounted, data: bytes) -> BlockList:
    """Put a content into the volume's block directory, as the syncer does, and pin it."""
    with BlockDirectory.open(str(mounted.volume / "blocks")) as blocks, blocks.hold() as hold:
        ids = [blocks.put(data[start : start + BLOCK], hold) for start in range(0, len(data), BLOCK)]
        blocks.pin("00000000-0000-0000-0000-000000000001", ids)
        blocks.sync()
    return BlockList(block_size=BLOCK, size_bytes=len(data), ids=b"".join(ids))


def prepared(client: ControlClient, content: BlockList) -> int:
    handle = client.prepare_file(
        size_bytes=content.size_bytes, mode=0o640, uid=os.geteuid(), gid=os.getegid(), mtime_ns=1_000_000_007
    )
    assert handle is not None
    assert client.set_blocks(handle, 0, content.ids) == []
    return handle


def test_status_tells_who_serves_what(mounted: Mounted, client: ControlClient) -> None:
    status = client.status()
    assert (status.pid, status.volume) == (mounted.pid, os.fsencode(mounted.volume))
    assert (status.mountpoint, status.block_size) == (os.fsencode(mounted.path), BLOCK)


def test_the_journal_tells_each_change_once_and_survives_a_clean_remount(mounted: Mounted) -> None:
    with ControlClient(os.fsencode(mounted.volume)) as client:
        (mounted.path / "a").write_bytes(b"a")
        (mounted.path / "d").mkdir()
        flush(mounted, client)
        full, rows, gone, cursor = client.changes(None)
        assert (full, gone) == (True, [])
        assert {place for row in rows for place in row.places} == {(ROOT, b"a"), (ROOT, b"d")}
        assert client.changes(cursor) == (False, [], [], cursor)
        (mounted.path / "a").rename(mounted.path / "d" / "b")
        (mounted.path / "c").write_bytes(b"c")
        flush(mounted, client)
        full, rows, gone, cursor = client.changes(cursor)
        assert not full
        assert {b"b", b"c", b"d"} <= set(rows_by_name(rows))
        ino = rows_by_name(rows)[b"c"].ino
    mounted.umount()
    mounted.remount()
    with ControlClient(os.fsencode(mounted.volume)) as client:
        (mounted.path / "c").unlink()
        flush(mounted, client)
        full, rows, gone, new_cursor = client.changes(cursor)
        assert not full
        assert gone == [ino]
    mounted.kill()
    mounted.remount()
    with ControlClient(os.fsencode(mounted.volume)) as client:
        assert client.changes(new_cursor)[0] is True  # an unclean end voids cursors


def test_long_listings_come_in_pages_of_one_snapshot(mounted: Mounted, client: ControlClient) -> None:
    for number in range(50):
        (mounted.path / f"f{number:02}").touch()
    flush(mounted, client)
    pages = client.change_pages(None, limit=7)
    first = next(pages)
    (mounted.path / "later").touch()
    (mounted.path / "f49").unlink()
    flush_with = ControlClient(os.fsencode(mounted.volume))
    flush(mounted, flush_with)
    flush_with.close()
    rows = [*first.rows, *(row for page in pages for row in page.rows)]
    assert len(first.rows) == 7
    assert len(rows) == 51  # 50 files and the root, as they were at the first page
    assert [row.ino for row in rows] == sorted({row.ino for row in rows})


def test_hashes_and_block_lists_name_the_content(mounted: Mounted, client: ControlClient) -> None:
    data = random.Random(1).randbytes(BLOCK * 300 + 17) + bytes(BLOCK * 40)
    (mounted.path / "big").write_bytes(data)
    (mounted.path / "empty").touch()
    flush(mounted, client)
    big, empty = row_of(client, b"big"), row_of(client, b"empty")
    found = client.block_list(big.ino, big.content_version, BLOCK)
    assert found is not None
    assert found == stored(mounted, data)
    for _ in range(2):  # the second time from remembered roots
        hashes = client.hashes([(big.ino, big.content_version), (empty.ino, empty.content_version), (big.ino, 1)])
        assert hashes[0] == found.object_hash
        assert hashes[1] == BlockList(block_size=BLOCK, size_bytes=0, ids=b"").object_hash
        assert hashes[2] is None
    with (mounted.path / "big").open("r+b") as file:
        file.write(b"changed")
    flush(mounted, client)
    assert client.block_list(big.ino, big.content_version, BLOCK) is None
    assert client.hashes([(big.ino, big.content_version)]) == [None]


def test_content_that_is_not_sealed_yet_has_no_hash(mounted: Mounted, client: ControlClient) -> None:
    with (mounted.path / "file").open("wb") as file:
        file.write(b"staged")
        file.flush()
        os.fsync(file.fileno())
    row = row_of(client, b"file")
    assert client.hashes([(row.ino, row.content_version)]) == [None]
    assert client.block_list(row.ino, row.content_version, BLOCK) is None


def test_an_installed_file_is_seen_at_once(mounted: Mounted, client: ControlClient) -> None:
    path = mounted.path / "new"
    assert not path.exists()  # remembered by the kernel
    data = random.Random(2).randbytes(200_000)
    done = client.apply(
        protocol.InstallFile(
            handle=prepared(client, stored(mounted, data)), parent=ROOT, name=b"new", expect=Expect(ino=None)
        )
    )
    assert isinstance(done, Applied)
    info = path.stat()
    assert (info.st_ino, info.st_size, info.st_mode & 0o7777, info.st_mtime_ns) == (
        *(done.ino, len(data), 0o640),
        1_000_000_007,
    )
    assert path.read_bytes() == data
    row = row_of(client, b"new")
    assert (row.version, row.content_version) == (done.version, done.content_version)
    mounted.kill()  # applied means durable
    mounted.remount()
    assert path.read_bytes() == data


def test_a_replaced_file_goes_to_the_trash_place(mounted: Mounted, client: ControlClient) -> None:
    path, trash = mounted.path / "file", mounted.path / "trash"
    trash.mkdir()
    path.write_bytes(b"old content")
    assert path.read_bytes() == b"old content"
    flush(mounted, client)
    reader = path.open("rb")
    row = row_of(client, b"file")
    expect = Expect(ino=row.ino, content_version=row.content_version)
    data = random.Random(3).randbytes(100_000)
    change = protocol.InstallFile(
        handle=prepared(client, stored(mounted, data)),
        parent=ROOT,
        name=b"file",
        expect=expect,
        trash_parent=trash.stat().st_ino,
        trash_name=b"old",
    )
    done = client.apply(change)
    assert isinstance(done, Applied)
    assert done.displaced == row.ino
    assert path.read_bytes() == data
    assert (trash / "old").read_bytes() == b"old content"
    assert reader.read() == b"old content"  # who has it open keeps it
    reader.close()
    assert path.stat().st_ino == done.ino


def test_a_changed_or_open_file_is_not_replaced(mounted: Mounted, client: ControlClient) -> None:
    path, trash = mounted.path / "file", mounted.path / "trash"
    trash.mkdir()
    path.write_bytes(b"one")
    flush(mounted, client)
    row = row_of(client, b"file")
    handle = prepared(client, stored(mounted, b"new"))

    def install(expect: Expect, name: bytes = b"file") -> Applied | Refused:
        place = {"trash_parent": trash.stat().st_ino, "trash_name": b"t"}
        return client.apply(protocol.InstallFile(handle=handle, parent=ROOT, name=name, expect=expect, **place))

    version = Expect(ino=row.ino, content_version=row.content_version)
    with path.open("r+b") as file:
        assert install(version) == Refused(reason="busy")
        file.write(b"two")
    assert install(Expect(ino=None)) == Refused(reason="occupied")
    flush(mounted, client)
    assert install(version) == Refused(reason="changed")
    assert install(Expect(ino=row.ino + 1000)) == Refused(reason="changed")
    assert install(version, name=b"missing") == Refused(reason="gone")
    assert path.read_bytes() == b"two"
    assert isinstance(install(Expect(ino=row.ino)), Applied)
    assert path.read_bytes() == b"new"


def test_blocks_that_are_not_stored_are_named(client: ControlClient) -> None:
    handle = client.prepare_file(size_bytes=BLOCK, mode=0o600, uid=0, gid=0, mtime_ns=0)
    assert handle is not None
    assert client.set_blocks(handle, 0, b"\x07" * 32) == [b"\x07" * 32]


def test_prepared_files_die_with_their_connection(mounted: Mounted, client: ControlClient) -> None:
    content = stored(mounted, b"x" * 10)
    with ControlClient(os.fsencode(mounted.volume)) as other:
        handle = prepared(other, content)
    change = protocol.InstallFile(handle=handle, parent=ROOT, name=b"f", expect=Expect(ino=None))
    with pytest.raises(RequestError, match="handle"):
        client.apply(change)
    mounted.umount()
    mounted.run("fsck", mounted.volume)
    mounted.remount()


def test_moves_removals_and_metadata_are_seen_at_once(mounted: Mounted, client: ControlClient) -> None:
    root = mounted.path
    (root / "d").mkdir()
    (root / "d" / "inside").write_bytes(b"i")
    (root / "f").write_bytes(b"content")
    flush(mounted, client)
    for path in (root / "d" / "inside", root / "f"):
        path.stat()  # known to the kernel
    assert not (root / "e").exists()
    rows = rows_by_name(client.changes(None)[1])

    def apply(
        change: protocol.ApplyMove | protocol.ApplyRemove | protocol.ApplySetMeta | protocol.ApplyMkdir,
    ) -> Applied:
        done = client.apply(change)
        assert isinstance(done, Applied), done
        return done

    apply(protocol.ApplyMove(parent=ROOT, name=b"d", new_parent=ROOT, new_name=b"e", expect=Expect(ino=rows[b"d"].ino)))
    assert sorted(os.listdir(root)) == ["e", "f"]
    assert (root / "e" / "inside").read_bytes() == b"i"
    assert not (root / "d").exists()
    expect = Expect(ino=rows[b"f"].ino, content_version=rows[b"f"].content_version)
    apply(protocol.ApplySetMeta(expect=expect, mode=0o604, mtime_ns=-3_000_000_001))
    assert (root / "f").stat().st_mode & 0o7777 == 0o604
    assert (root / "f").stat().st_mtime_ns == -3_000_000_001
    apply(protocol.ApplyMkdir(parent=ROOT, name=b"made", mode=0o711, uid=0, gid=0))
    assert (root / "made").stat().st_mode & 0o7777 == 0o711
    assert client.apply(protocol.ApplyRemove(parent=ROOT, name=b"e", expect=Expect(ino=rows[b"d"].ino))) == Refused(
        reason="not_empty"
    )
    apply(protocol.ApplyRemove(parent=ROOT, name=b"f", expect=expect))
    assert not (root / "f").exists()
    assert sorted(os.listdir(root)) == ["e", "made"]
    symlink = protocol.ApplySymlink(parent=ROOT, name=b"link", target=b"e/inside", uid=0, gid=0)
    assert isinstance(client.apply(symlink), Applied)
    assert (root / "link").read_bytes() == b"i"


def test_the_socket_is_its_owners_alone(mounted: Mounted) -> None:
    assert (mounted.volume / "control.sock").stat().st_mode & 0o777 == 0o600


def test_a_volume_deep_down_can_be_controlled(mounted: Mounted, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    mountpoint = tmp_path / "deep-mount"
    mountpoint.mkdir()
    mounted.run("init", deep / "v")
    mounted.run("mount", deep / "v", mountpoint)
    try:
        mounted.run("flush", mountpoint)
    finally:
        mounted.run("umount", mountpoint)


def new_file(name: bytes, content: BlockList, parent: int = ROOT) -> protocol.NewFile:
    return protocol.NewFile(
        parent=parent,
        name=name,
        size_bytes=content.size_bytes,
        mode=0o640,
        uid=os.geteuid(),
        gid=os.getegid(),
        mtime_ns=1_000_000_007,
        ids=content.ids,
    )


def test_new_files_are_seen_at_once_and_kept_by_the_next_commit(mounted: Mounted, client: ControlClient) -> None:
    flush(mounted, client)
    contents = {b"one": b"1" * 100, b"two": b"2" * (BLOCK + 7), b"empty": b""}
    for name in contents:
        assert not (mounted.path / os.fsdecode(name)).exists()  # the kernel may remember that
    times = mounted.path.stat()
    files = [new_file(name, stored(mounted, data)) for name, data in contents.items()]
    made = client.make_files([*files, files[0]], commit=False)
    assert all(isinstance(each, Applied) for each in made[:3])
    assert made[3] == Refused(reason="occupied")
    assert mounted.path.stat().st_mtime_ns > times.st_mtime_ns
    for name, data in contents.items():
        path = mounted.path / os.fsdecode(name)
        assert path.read_bytes() == data
        assert (path.stat().st_mode & 0o7777, path.stat().st_mtime_ns) == (0o640, 1_000_000_007)
    client.commit()
    rows = rows_by_name(client.changes(None)[1])
    assert [rows[name].content_version for name in contents] == [
        each.content_version for each in made[:3] if isinstance(each, Applied)
    ]
    mounted.kill()
    mounted.remount()
    for name, data in contents.items():
        assert (mounted.path / os.fsdecode(name)).read_bytes() == data


def test_new_files_with_a_commit_of_their_own_survive_a_kill(mounted: Mounted, client: ControlClient) -> None:
    (made,) = client.make_files([new_file(b"f", stored(mounted, b"data"))], commit=True)
    assert isinstance(made, Applied)
    mounted.kill()
    mounted.remount()
    assert (mounted.path / "f").read_bytes() == b"data"


def test_changes_without_a_commit_of_their_own_are_kept_by_the_next_one(
    mounted: Mounted, client: ControlClient
) -> None:
    flush(mounted, client)
    names = [b"one", b"two", b"three"]
    for name in names:
        change = protocol.ApplyMkdir(commit=False, parent=ROOT, name=name, mode=0o755, uid=0, gid=0)
        assert isinstance(client.apply(change), Applied)
    assert sorted(os.listdir(mounted.path)) == ["one", "three", "two"]
    client.commit()
    assert set(names) <= rows_by_name(client.changes(None)[1]).keys()
    mounted.kill()
    mounted.remount()
    assert sorted(os.listdir(mounted.path)) == ["one", "three", "two"]
