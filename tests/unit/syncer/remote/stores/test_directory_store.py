"""A store in a directory: what a crash leaves, and what else may lie there."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from syncer.errors import NoSpaceError, NotAllowedError, NotFoundError, RemoteUnavailableError
from syncer.remote.http.transport import BadReplyError
from syncer.remote.stores.directory import DirectoryStore

OLD, NEW = b"old" * 1000, b"the new one" * 2000
STEPS = ("open", "pwrite", "fsync", "close", "rename", "mkdir")
DAY_S = 86400


class DiedError(BaseException):
    """The process is killed here."""


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    made = DirectoryStore(os.fsencode(tmp_path / "store"))
    trio.run(functools.partial(made.open, create=True))
    return made


def call_each(monkeypatch: pytest.MonkeyPatch, before: Callable[[str, tuple[Any, ...]], None]) -> None:
    """Let something happen before each system call that a write is made of."""
    for step in STEPS:
        real = getattr(os, step)

        def called(*args: Any, _step: str = step, _real: Any = real, **kwargs: Any) -> Any:
            before(_step, args)
            return _real(*args, **kwargs)

        monkeypatch.setattr(os, step, called)


@pytest.mark.parametrize("replaces", [True, False])
def test_whoever_dies_in_a_write_leaves_the_old_or_the_new_object(
    replaces: bool, store: DirectoryStore, tmp_path: Path
) -> None:
    """Breaks when a part of an object may be read under its name after a crash."""
    left = 0
    for deadly in range(100):
        name = f"packs/{deadly:02x}/x"
        if replaces:
            trio.run(store.put, name, OLD)
        calls = iter(range(1000))

        def die(step: str, args: tuple[Any, ...], at: int = deadly, calls: Any = calls) -> None:
            if next(calls) == at:
                raise DiedError

        with pytest.MonkeyPatch.context() as patch:
            call_each(patch, die)
            try:
                store._write(name, [NEW[:5000], NEW[5000:]], absent=False)
            except DiedError:
                died = True
            else:
                died = False
        found = trio.run(store.head, name)
        listed = [blob.name for blob in trio.run(store.listing, f"packs/{deadly:02x}/")]
        assert listed == ([name] if found else [])
        assert found is not None or (died and not replaces)
        if found is not None:
            assert trio.run(store.get, name) in ((NEW,) if not died else (OLD, NEW))
        trio.run(store.put, name, NEW)
        assert trio.run(store.get, name) == NEW
        left += bool(list((tmp_path / "store").rglob(".tmp-*")))
        if not died:
            break
    else:
        raise AssertionError("it never got through")
    assert left  # some of them died with a file under another name


def test_a_name_appears_after_its_bytes_are_durable_and_is_made_durable_itself(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def note(step: str, args: tuple[Any, ...]) -> None:
        if step == "fsync":
            path = os.readlink(f"/proc/self/fd/{args[0]}")
            order.append("fsync " + ("file" if "/.tmp-" in path else os.path.relpath(path, tmp_path / "store")))
        elif step in ("rename", "mkdir"):
            order.append(f"{step} {os.path.relpath(args[-1], tmp_path / 'store')}")

    call_each(monkeypatch, note)
    assert store._write("packs/ab/x", NEW, absent=False)
    assert order == [
        "mkdir packs",
        "fsync .",
        "mkdir packs/ab",
        "fsync packs",
        "fsync file",
        "rename packs/ab/x",
        "fsync packs/ab",
    ]
    order.clear()
    assert not store._write("packs/ab/x", NEW, absent=True)
    assert order == ["fsync packs/ab"]  # whoever wrote it may have died before that


def test_a_directory_that_is_not_the_one_that_was_opened_is_not_called_empty(
    store: DirectoryStore, tmp_path: Path
) -> None:
    """Breaks when an unmounted disk looks like a store that somebody emptied, or is filled on the wrong disk."""
    trio.run(store.put, "heads/one", OLD)
    (tmp_path / "store").rename(tmp_path / "away")
    asks = [
        functools.partial(store.listing, ""),
        functools.partial(store.head, "heads/one"),
        functools.partial(store.get, "heads/one"),
        functools.partial(store.put, "heads/one", NEW),
        functools.partial(store.delete, "heads/one"),
        store.now_ns,
    ]
    for present in (False, True):
        if present:
            (tmp_path / "store").mkdir()
        for ask in asks:
            with pytest.raises(RemoteUnavailableError, match="mounted"):
                trio.run(ask)
    assert list((tmp_path / "store").iterdir()) == []
    assert (tmp_path / "away/heads/one").read_bytes() == OLD


def test_what_a_dead_writer_left_is_never_listed_and_goes_after_two_days(store: DirectoryStore, tmp_path: Path) -> None:
    trio.run(store.put, "packs/one", OLD)
    now = os.stat(tmp_path / "store/packs/one").st_mtime
    old, new, users = f".tmp-{'0' * 32}", f".tmp-{'1' * 32}", ".tmp-chapter"
    for name, age_s in ((old, 3 * DAY_S), (new, DAY_S), (users, 3 * DAY_S)):
        (tmp_path / "store/packs" / name).write_bytes(b"part")
        os.utime(tmp_path / "store/packs" / name, (now - age_s, now - age_s))
    assert [blob.name for blob in trio.run(store.listing, "")] == ["packs/one"]
    assert sorted(os.listdir(tmp_path / "store/packs")) == [new, users, "one"]


def test_who_waits_removes_nothing(store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask how old it is writes a file, which is told as a change, at which it would look again, without end."""
    trio.run(store.put, "heads/one", OLD)
    (tmp_path / f"store/heads/.tmp-{'0' * 32}").write_bytes(b"part")
    monkeypatch.setattr(store, "_now_ns", lambda: pytest.fail("it asked for the time"))

    async def scenario() -> None:
        seen = await store.wait("heads/", None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.wait, "heads/", seen)
            await store.put("heads/two", NEW)

    trio.run(scenario)


def test_what_is_no_object_of_ours_is_left_alone_and_never_hangs_us(store: DirectoryStore, tmp_path: Path) -> None:
    folder = tmp_path / "store/heads"
    folder.mkdir()
    (folder / "Notes.TXT").write_bytes(b"a person's")
    (folder / ".hidden").write_bytes(b"a person's")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_bytes(b"elsewhere")
    assert trio.run(store.listing, "") == []
    assert trio.run(store.head, "heads/pipe") is None
    with pytest.raises(BadReplyError):
        trio.run(store.get, "heads/pipe")
    with pytest.raises(RemoteUnavailableError):
        trio.run(store.get, "heads/link")
    trio.run(store.put, "heads/link", NEW)
    assert (tmp_path / "secret").read_bytes() == b"elsewhere"
    assert trio.run(store.get, "heads/link") == NEW


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_as_such_and_leaves_nothing(
    number: int, store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.run(store.put, "packs/one", OLD)

    def fail(step: str, args: tuple[Any, ...]) -> None:
        if step == "pwrite":
            raise OSError(number, os.strerror(number))

    call_each(monkeypatch, fail)
    with pytest.raises(NoSpaceError):
        trio.run(store.put, "packs/one", NEW)
    monkeypatch.undo()
    assert os.listdir(tmp_path / "store/packs") == ["one"]
    assert trio.run(store.get, "packs/one") == OLD


@pytest.mark.parametrize(("number", "said"), [(errno.EROFS, "mount it writable"), (errno.EACCES, "permissions")])
def test_a_directory_that_can_not_be_written_is_told_with_what_to_do(
    number: int, said: str, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.run(store.put, "packs/one", OLD)

    def fail(step: str, args: tuple[Any, ...]) -> None:
        if step == "pwrite":
            raise OSError(number, os.strerror(number))

    call_each(monkeypatch, fail)
    with pytest.raises(NotAllowedError, match=said):
        trio.run(store.put, "packs/two", NEW)
    assert trio.run(store.get, "packs/one") == OLD


def test_a_directory_that_can_not_be_made_or_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "none", tmp_path / "file/below"):
        with pytest.raises(NotFoundError):
            trio.run(DirectoryStore(os.fsencode(path)).open)


def test_a_directory_that_was_listed_first_and_unmounted_is_not_opened_as_another_one(tmp_path: Path) -> None:
    """Breaks when what was listed on a disk is taken for what the empty directory below it has."""

    async def main() -> None:
        place = tmp_path / "store"
        with pytest.raises(NotFoundError):
            await DirectoryStore(os.fsencode(place)).listing("heads/")
        place.mkdir()
        store = DirectoryStore(os.fsencode(place))
        assert await store.listing("heads/") == []
        place.rename(tmp_path / "unmounted")
        place.mkdir()
        with pytest.raises(RemoteUnavailableError):
            await store.open()

    trio.run(main)
