"""SFTP against a real sshd: what fails, and what is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import trio

from syncer.errors import AuthError, NoSpaceError, NotFoundError, RemoteUnavailableError, UsageError
from syncer.remote.http.transport import BadReplyError, UntrustedError
from syncer.remote.stores.opening import make_store
from syncer.remote.stores.sftp import SftpStore, _blob
from tests.kit import sshd as ssh

PACK = bytes(range(256)) * (32 << 10)  # 8 MiB


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssh.Sshd]:
    with ssh.serving(tmp_path_factory.mktemp("sshd")) as found:
        yield found


def using(
    sshd: ssh.Sshd, folder: Path, test: Callable[[SftpStore], Awaitable[None]], *, create: bool = True, **options: Any
) -> None:
    async def main() -> None:
        store = SftpStore("127.0.0.1", str(folder), options={**sshd.options, **options})
        try:
            with trio.fail_after(120):
                await store.open(create=create)
                await test(store)
        finally:
            await store.close()

    trio.run(main)


async def nothing(store: SftpStore) -> None:
    raise AssertionError


def test_a_host_that_is_not_known_is_refused(sshd: ssh.Sshd, tmp_path: Path) -> None:
    """Breaks when a stranger between us and the server is trusted."""
    (tmp_path / "nobody").write_text("")
    with pytest.raises(UntrustedError, match="known_hosts"):
        using(sshd, tmp_path, nothing, known_hosts=str(tmp_path / "nobody"))


def test_a_host_that_does_not_know_us_is_told(sshd: ssh.Sshd, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    with pytest.raises(AuthError):
        using(sshd, tmp_path, nothing, client_keys=[str(tmp_path / "other")])


def test_a_host_that_does_not_answer_is_unreachable(sshd: ssh.Sshd, tmp_path: Path) -> None:
    with pytest.raises(RemoteUnavailableError) as found:
        using(sshd, tmp_path, nothing, port=1)
    assert found.value.retryable


def test_a_directory_that_is_not_there_is_told(sshd: ssh.Sshd, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        using(sshd, tmp_path / "none", nothing, create=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError):
        using(sshd, tmp_path / "file", nothing, create=False)


def test_a_connection_that_ends_in_the_middle_leaves_the_old_or_the_new(sshd: ssh.Sshd, tmp_path: Path) -> None:
    """Breaks when a part of a pack is read after a line was cut, or when nothing goes on afterwards."""
    folder = tmp_path / "store"

    async def test(store: SftpStore) -> None:
        await store.put("packs/x", b"old")
        cut = 0
        for number in range(12):

            async def end(delay_s: float = number * 0.006) -> None:
                await trio.sleep(delay_s)
                connection = store._connection
                assert store._loop is not None
                if connection is not None:
                    store._loop.call_soon_threadsafe(connection.abort)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(end)
                try:
                    await store.put("packs/x", PACK)
                except RemoteUnavailableError:
                    cut += 1
            try:
                seen = await store.get("packs/x")
            except RemoteUnavailableError:  # the connection ended only now
                seen = await store.get("packs/x")
            assert seen in (b"old", PACK)
            assert [blob.name for blob in await store.listing("")] == ["packs/x"]
            await store.put("packs/x", b"old")
        assert cut

    using(sshd, folder, test)


def test_a_directory_that_vanishes_is_not_an_empty_store(sshd: ssh.Sshd, tmp_path: Path) -> None:
    """Breaks when a disk that was unmounted looks like a store in which everything was deleted."""
    folder = tmp_path / "store"

    async def test(store: SftpStore) -> None:
        await store.put("x", b"data")
        folder.rename(tmp_path / "away")
        for call in (store.get("x"), store.head("x"), store.listing(""), store.put("x", b"other"), store.now_ns()):
            with pytest.raises(RemoteUnavailableError):
                await call
        assert not folder.exists()
        (tmp_path / "away").rename(folder)
        assert await store.get("x") == b"data"

    using(sshd, folder, test)


def test_a_directory_with_more_files_than_may_be_is_refused(
    sshd: ssh.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncer.remote.stores.sftp.MAX_NAMES", 5)

    async def test(store: SftpStore) -> None:
        for number in range(6):
            await store.put(f"packs/{number}", b"")
        with pytest.raises(BadReplyError, match="more than 5"):
            await store.listing("")

    using(sshd, tmp_path / "store", test)


def test_a_full_disk_is_told_as_one_and_nothing_is_left(sshd: ssh.Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", folder], check=True)
    try:

        async def test(store: SftpStore) -> None:
            await store.put("x", b"data")
            with pytest.raises(NoSpaceError):
                await store.put("packs/y", PACK)
            assert await store.head("packs/y") is None
            assert list((folder / "packs").iterdir()) == []
            await store.put("x", b"new")
            assert await store.get("x") == b"new"

        using(sshd, folder, test)
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_server_without_the_extensions_is_used_or_refused(
    sshd: ssh.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when an object is replaced by deleting it first, because a server can't do it at once."""
    folder = tmp_path / "store"

    async def unsupported(*_: object) -> None:
        raise asyncssh.SFTPOpUnsupported("not here")

    async def test(store: SftpStore) -> None:
        await store.put("x", b"old")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncssh.SFTPClientFile, "fsync", unsupported)
            await store.put("x", b"new")
        assert await store.get("x") == b"new"
        monkeypatch.setattr(asyncssh.SFTPClient, "posix_rename", unsupported)
        with pytest.raises(UsageError, match="posix-rename"):
            await store.put("x", b"newer")
        assert await store.get("x") == b"new"
        assert [path.name for path in folder.iterdir()] == ["x"]

    using(sshd, folder, test)


def test_what_a_dead_writer_left_goes_after_two_days(sshd: ssh.Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    old, new, users = (folder / f".tmp-{name}" for name in ("0" * 32, "1" * 32, "chapter"))
    for path in (old, new, users):
        path.write_bytes(b"part")
    for path in (old, users):
        long_ago = new.stat().st_mtime - 3 * 86400
        os.utime(path, (long_ago, long_ago))
    (folder / "link").symlink_to("/etc/passwd")

    async def test(store: SftpStore) -> None:
        assert await store.listing("") == []
        assert await store.head("link") is None

    using(sshd, folder, test)
    assert new.exists()
    assert users.exists()
    assert not old.exists()


def test_a_server_that_keeps_an_attribute_to_itself_is_told() -> None:
    with pytest.raises(BadReplyError, match="length and time of heads/x"):
        _blob("heads/x", asyncssh.SFTPAttrs(type=1))


@pytest.mark.parametrize(
    ("module", "url", "extra"), [("asyncssh", "sftp://host/srv", "sftp"), ("opendal", "s3://bucket", "opendal")]
)
def test_the_door_says_what_is_to_be_installed(
    module: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"pip install 'blocksync\[{extra}\]'"):
        make_store(url, environ={})
