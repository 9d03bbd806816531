"""The key of a share on every kind of server, and of a folder of each: one key, made once, learnt of without asking."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from pathlib import Path

import pytest
import trio

from syncer.core.model import Kind, RelPath
from syncer.core.partial.listing_diff import Known
from syncer.core.paths import LAN_KEY, PRIVATE
from syncer.engine.share.lankey import LanKeyKeeper
from syncer.errors import ForbiddenError, FormatTooNewError, UnsafeNameError
from syncer.peer import sharekey
from syncer.ports.remote import Changes, KeySign, Listing, Remote
from syncer.state.keyfile import KeyFile
from tests.contract.remotes import (
    BLOCK,
    META,
    Subject,
    head,
    path,
    run,
)
from tests.contract.writing import delete, put_small
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.kit.rows import MemoryRows

DAY = 24 * 3600
NAME = RelPath(LAN_KEY)
FOLDER = RelPath(PRIVATE)


class Device:
    """A device's memory of the key, with a clock of its own."""

    def __init__(self, folder: Path, name: str = "one") -> None:
        self.now_s = 1_790_000_000.0
        self.file = KeyFile(str(folder / f"key-{name}"))
        seeds = itertools.count()

        def random(size: int) -> bytes:
            return (b"%s%d" % (name.encode(), next(seeds))).ljust(size, b".")

        self.keeper = LanKeyKeeper("share", self.file, clock=lambda: self.now_s, random=random)

    def keys(self) -> list[bytes]:
        return [key.raw for key in self.keeper.keys_now()]

    @property
    def off(self) -> str:
        return self.keeper.kept().off


def sign_of(found: Listing | Changes) -> KeySign:
    gone = found.lan_key_gone if isinstance(found, Changes) else found.lan_key is None
    return KeySign(stat=found.lan_key, gone=gone)


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passphrases that cost no half second each."""
    monkeypatch.setattr(sharekey, "_SCRYPT_N", 4)


async def attend(device: Device, client: Remote) -> None:
    """As a cycle that looks at everything."""
    await device.keeper.attend(client, sign_of(await client.list_objects()))


def test_the_first_makes_a_key_and_the_second_reads_it(pithos: Subject, tmp_path: Path) -> None:
    async def scenario(client: Remote) -> None:
        one, two = Device(tmp_path, "one"), Device(tmp_path, "two")
        await attend(one, client)
        await attend(two, client)
        assert len(one.keys()) == 1
        assert one.keys() == two.keys()
        assert not one.off
        listing = await client.list_objects()
        assert listing.objects == []  # nobody is told of it, but beside
        assert listing.lan_key is not None
        assert Path(one.file.path).stat().st_mode & 0o777 == 0o600

    run(pithos, scenario)


def test_the_first_key_has_a_directory_object_above_it_which_nobody_is_told_of(pithos: Subject, tmp_path: Path) -> None:
    """Without it `kamaki file download -r` has nowhere to put the key."""

    async def scenario(client: Remote) -> None:
        one, listing = Device(tmp_path), await client.list_objects()
        written = await one.keeper.attend(client, sign_of(listing))
        folder, key = await head(client, FOLDER), await head(client, NAME)
        assert folder is not None
        assert key is not None
        assert folder.kind is Kind.DIRECTORY
        assert folder.meta is not None
        assert folder.meta.mode == 0o700
        assert written == [folder.tag, key.tag]
        assert (await client.list_objects()).objects == []
        found = await client.changes(listing.position, Known(rows=lambda: nullcontext(MemoryRows({}))))
        assert found is not None
        assert (found.objects, found.deleted, found.refused) == ([], [], [])
        await one.keeper.rotate(client)
        assert await head(client, FOLDER) == folder

    run(pithos, scenario)


def test_a_rotation_makes_the_directory_object_of_a_key_that_has_none(pithos: Subject, tmp_path: Path) -> None:
    """Keys of releases before this one."""

    async def scenario(client: Remote) -> None:
        one = Device(tmp_path)
        await attend(one, client)
        folder = await head(client, FOLDER)
        assert folder is not None
        await delete(client, FOLDER, folder.tag)
        await one.keeper.rotate(client)
        assert await head(client, FOLDER) is not None
        assert len(one.keys()) == 2

    run(pithos, scenario)


def test_two_that_make_one_at_once_have_the_same(pithos: Subject, tmp_path: Path) -> None:
    async def scenario(client: Remote) -> None:
        one, two = Device(tmp_path, "one"), Device(tmp_path, "two")
        sign = sign_of(await client.list_objects())
        async with trio.open_nursery() as nursery:
            for device in (one, two):
                nursery.start_soon(device.keeper.attend, client, sign)
        for device in (one, two):  # where conditions are not atomic, the loser learns of the other with its next look
            await attend(device, client)
        assert len(one.keys()) == 1
        assert one.keys() == two.keys()
        assert await head(client, FOLDER) is not None

    run(pithos, scenario)


def test_a_cycle_that_changes_nothing_costs_no_request(pithos: Subject, tmp_path: Path) -> None:
    async def scenario(client: Remote) -> None:
        one = Device(tmp_path)
        await attend(one, client)
        sign = sign_of(await client.list_objects())
        before = client.counters.snapshot()
        await one.keeper.attend(client, sign)
        await one.keeper.attend(client, KeySign())
        one.now_s += 29 * DAY
        await one.keeper.attend(client, KeySign())
        assert client.counters.since(before).requests == 0

    run(pithos, scenario)


def test_a_rotation_is_told_by_the_next_changes_and_both_keys_count_a_day(pithos: Subject, tmp_path: Path) -> None:
    async def scenario(client: Remote) -> None:
        one, two = Device(tmp_path, "one"), Device(tmp_path, "two")
        await attend(one, client)
        await attend(two, client)
        await put_small(client, path("file"), Kind.FILE, b"1", META, None)
        listing = await client.list_objects()
        old = one.keys()
        await one.keeper.rotate(client)
        found = await client.changes(listing.position, Known(rows=lambda: nullcontext(MemoryRows({}))))
        assert found is not None
        assert found.lan_key is not None
        before = client.counters.snapshot()
        await two.keeper.attend(client, sign_of(found))
        assert client.counters.since(before).requests <= 2  # 1, but memory counts a look at the container
        assert one.keys() == two.keys() != old
        assert two.keys()[1:] == old
        for device in (one, two):
            device.now_s += DAY
            assert len(device.keys()) == 1

    run(pithos, scenario)


def test_a_key_is_rotated_after_thirty_days_by_one_of_them(pithos: Subject, tmp_path: Path) -> None:
    async def scenario(client: Remote) -> None:
        one, two = Device(tmp_path, "one"), Device(tmp_path, "two")
        await attend(one, client)
        await attend(two, client)
        for device in (one, two):
            device.now_s += 30 * DAY
        for device in (one, two):
            await device.keeper.attend(client, KeySign())
        assert one.keeper.kept().highest == two.keeper.kept().highest == 2
        assert one.keys() == two.keys()
        assert len(one.keys()) == 2

    run(pithos, scenario)


def test_a_key_that_is_gone_turns_the_lan_off_until_somebody_rotates(pithos: Subject, tmp_path: Path) -> None:
    async def scenario(client: Remote) -> None:
        one, two = Device(tmp_path, "one"), Device(tmp_path, "two")
        await attend(one, client)
        await attend(two, client)
        stat = await head(client, NAME)
        assert stat is not None
        await delete(client, NAME, stat.tag)
        for device in (one, two):
            await attend(device, client)
            assert device.keys() == []
            assert "gone" in device.off
        assert await head(client, NAME) is None  # nobody makes one in passing
        await one.keeper.rotate(client)
        await attend(two, client)
        assert len(one.keys()) == 1
        assert one.keys() == two.keys()
        assert one.keeper.kept().highest == 2

    run(pithos, scenario)


def test_a_key_that_was_put_back_turns_the_lan_off(pithos: Subject, tmp_path: Path) -> None:
    async def scenario(client: Remote) -> None:
        one = Device(tmp_path)
        await attend(one, client)
        stat = await head(client, NAME)
        assert stat is not None
        first = sharekey.encode(one.keeper.kept().key)  # type: ignore[arg-type] # there is one
        await one.keeper.rotate(client)
        stat = await head(client, NAME)
        assert stat is not None
        await put_small(client, NAME, Kind.FILE, first, META, stat.tag)
        await attend(one, client)
        assert one.keys() == []
        assert "older" in one.off
        await one.keeper.rotate(client)
        assert len(one.keys()) == 1  # what was put back does not count on
        assert one.keeper.kept().highest == 3

    run(pithos, scenario)


@pytest.mark.parametrize("raw", [b"{}", b"rubbish", b"x" * BLOCK, b'{"format": 9}'])
def test_what_is_no_key_turns_the_lan_off_and_is_not_overwritten_in_passing(
    pithos: Subject, tmp_path: Path, raw: bytes
) -> None:
    async def scenario(client: Remote) -> None:
        one = Device(tmp_path)
        await put_small(client, NAME, Kind.FILE, raw, META, None)
        await attend(one, client)
        assert one.keys() == []
        assert one.off
        before = client.counters.snapshot()
        await one.keeper.attend(client, KeySign())
        assert client.counters.since(before).requests == 0
        if b"9" in raw:
            with pytest.raises(FormatTooNewError):
                await one.keeper.rotate(client)
        else:
            await one.keeper.rotate(client)
            assert len(one.keys()) == 1

    run(pithos, scenario)


def test_no_other_private_name_may_be_used(pithos: Subject) -> None:
    async def scenario(client: Remote) -> None:
        if isinstance(client, MemoryClient):
            return  # it takes any name; its users are tests
        for name in (".blocksync/lan-key2", ".blocksync/lan-key/x", ".blocksync/root"):
            with pytest.raises(UnsafeNameError):
                await put_small(client, path(name), Kind.FILE, b"x", META, None)

    run(pithos, scenario)


# --- what needs a server that refuses


class Refusing(MemoryClient):
    """A token that may only read, or not even that."""

    def __init__(self, container: MemoryContainer, *operations: str) -> None:
        async def refuse(operation: str, where: RelPath) -> None:
            if where in {FOLDER, NAME} and operation in operations:
                raise ForbiddenError("403")

        super().__init__(container, before=refuse)


def test_a_token_that_may_only_read_makes_no_key_and_asks_once_a_day(tmp_path: Path) -> None:
    async def main() -> None:
        container, one = MemoryContainer(), Device(tmp_path)
        client = Refusing(container, "store")
        await attend(one, client)
        assert one.keys() == []
        assert one.off
        tried = client.counters.mutating_requests
        await attend(one, client)
        assert client.counters.mutating_requests == tried
        assert container.objects == {}
        one.now_s += DAY
        await attend(one, client)
        assert client.counters.mutating_requests == tried + 1
        two = Device(tmp_path, "two")
        await attend(two, MemoryClient(container))
        await attend(one, client)
        assert one.keys() == two.keys() != []

    trio.run(main)


def test_a_token_that_may_only_read_goes_on_with_a_key_that_is_due(tmp_path: Path) -> None:
    async def main() -> None:
        container, one, two = MemoryContainer(), Device(tmp_path, "one"), Device(tmp_path, "two")
        await attend(two, MemoryClient(container))
        client = Refusing(container, "store")
        await attend(one, client)
        one.now_s += 31 * DAY
        await one.keeper.attend(client, KeySign())
        assert one.keys() == two.keys()
        tried = client.counters.requests
        await one.keeper.attend(client, KeySign())
        assert client.counters.requests == tried
        with pytest.raises(ForbiddenError):
            await one.keeper.rotate(client)

    trio.run(main)


def test_a_key_that_may_not_be_read_turns_the_lan_off(tmp_path: Path) -> None:
    async def main() -> None:
        container, one = MemoryContainer(), Device(tmp_path)
        await attend(Device(tmp_path, "two"), MemoryClient(container))
        await attend(one, Refusing(container, "secret"))
        assert one.keys() == []
        assert one.off

    trio.run(main)


def test_somebody_who_rotates_at_the_same_moment_is_believed(tmp_path: Path) -> None:
    async def main() -> None:
        container, one, two = MemoryContainer(), Device(tmp_path, "one"), Device(tmp_path, "two")
        await attend(one, MemoryClient(container))
        await attend(two, MemoryClient(container))

        async def between(operation: str, where: RelPath) -> None:
            if operation == "store" and two.keeper.kept().highest == 1:
                await two.keeper.rotate(MemoryClient(container))

        await one.keeper.rotate(MemoryClient(container, before=between))
        assert one.keys() == two.keys()
        assert one.keeper.kept().highest == 2

    trio.run(main)


def test_what_is_kept_of_another_share_does_not_count(tmp_path: Path) -> None:
    async def main() -> None:
        one = Device(tmp_path)
        await attend(one, MemoryClient(MemoryContainer()))
        again = LanKeyKeeper("another", one.file)
        assert again.keys_now() == ()

    trio.run(main)


def test_what_a_newer_program_kept_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        one = Device(tmp_path)
        one.file.write(b'{"format": 2}')
        client = MemoryClient(MemoryContainer())
        await attend(one, client)
        assert one.file.read() == b'{"format": 2}'
        assert client.counters.mutating_requests == 0
        with pytest.raises(FormatTooNewError) as caught:
            one.keeper.keys_now()
        assert caught.value.exit_code == 14

    trio.run(main)


def test_a_passphrase_needs_no_object(cheap: None, tmp_path: Path) -> None:
    async def main() -> None:
        container, one, two = MemoryContainer(), Device(tmp_path, "one"), Device(tmp_path, "two")
        for device in (one, two):
            device.keeper.use_passphrase("correct horse", "anna", "docs", "")
            await attend(device, MemoryClient(container))
        assert one.keys() == two.keys() != []
        assert container.objects == {}

    trio.run(main)


def test_a_version_that_is_no_file_turns_the_lan_off(tmp_path: Path) -> None:
    async def main() -> None:
        one, client = Device(tmp_path), MemoryClient(MemoryContainer())
        await put_small(client, NAME, Kind.SYMLINK, b"x" * 100, META, None)
        await attend(one, client)
        assert one.keys() == []
        assert one.off

    trio.run(main)


def test_a_key_that_can_not_be_kept_fails_no_cycle(tmp_path: Path) -> None:
    async def main() -> None:
        one, container = Device(tmp_path / "gone"), MemoryContainer()
        await attend(one, MemoryClient(container))
        assert one.keys() == []
        (tmp_path / "gone").mkdir()
        await attend(one, MemoryClient(container))
        assert len(one.keys()) == 1

    trio.run(main)


def test_a_passphrase_that_is_set_while_a_cycle_looks_at_the_key_stays(cheap: None, tmp_path: Path) -> None:
    """Else the cycle would put the server's key in its place, and nobody would notice."""

    async def main() -> None:
        container, one = MemoryContainer(), Device(tmp_path, "one")

        async def between(operation: str, where: RelPath) -> None:
            if operation == "store" and where == NAME:
                one.keeper.use_passphrase("correct horse", "anna", "docs", "")

        await attend(one, MemoryClient(container, before=between))
        assert one.keeper.kept().passphrase

    trio.run(main)


def test_who_forgets_a_passphrase_takes_the_servers_key_again_but_no_older_one(cheap: None, tmp_path: Path) -> None:
    async def main() -> None:
        container, one = MemoryContainer(), Device(tmp_path, "one")
        client = MemoryClient(container)
        await attend(one, client)
        first = sharekey.encode(one.keeper.kept().key)  # type: ignore[arg-type] # there is one
        await one.keeper.rotate(client)
        newest = one.keys()
        one.keeper.use_passphrase("correct horse", "anna", "docs", "")
        assert one.keys() != newest
        assert one.keeper.forget_passphrase()
        assert not one.keeper.forget_passphrase()
        assert one.keys() == []
        await one.keeper.attend(client, KeySign())  # nothing changed on the server: it asks
        assert one.keys() == newest
        one.keeper.use_passphrase("correct horse", "anna", "docs", "")
        stat = await head(client, NAME)
        assert stat is not None
        await put_small(client, NAME, Kind.FILE, first, META, stat.tag)
        one.keeper.forget_passphrase()
        await attend(one, client)
        assert "older" in one.off

    trio.run(main)
