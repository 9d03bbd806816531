"""Blocks of a root for other devices: what is in the share as the base says, and nothing else that is on the disk.

That is B10 of docs/design/board.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from blockfs.blocks.hashing import block_id
from syncer.core.model import RelPath
from syncer.core.planner.merge import Policy
from syncer.engine.cycle import Cycle, Options
from syncer.engine.report import Report
from syncer.engine.root_state import RootState
from syncer.engine.share.sharing import SharedRoot, ShareKeeper
from syncer.errors import RemoteUnavailableError
from syncer.local.sharedblocks import FolderBlocks
from syncer.ports.blocks import ShareIndex
from syncer.ports.localvalues import Hints
from syncer.ports.remote import Remote
from syncer.remote.prefix import PrefixClient
from syncer.state.shareindex import IdIndex
from syncer.state.statedb import StateDB
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.unit.syncer.engine.devices import Ears
from tests.unit.syncer.local.folders import BLOCK, Place, new_place


class Shared:
    """A folder, its state, its cycles, and what it tells others."""

    def __init__(self, place: Place, container: MemoryContainer, prefix: str = "") -> None:
        self.place, self.container, self.prefix = place, container, prefix
        self.state = str(place.state / "db-folder")
        self.index = str(place.state / "share-index")
        StateDB.create(self.state, map_size_bytes=1 << 26).close()
        self.paused = False
        self.patterns: list[bytes] = []
        self.tidied = Ears()
        self.at_end: Callable[[], None] = lambda: None  # of a cycle, before its index follows
        reader = FolderBlocks(os.fsencode(place.path), place.folder, BLOCK)
        self.root = SharedRoot("share", self.state, self.index, reader, lambda: self.paused)

    def client(self) -> Remote:
        client = MemoryClient(self.container)
        return PrefixClient(client, RelPath(self.prefix.encode())) if self.prefix else client

    def reconcile(self, client: Remote | None = None) -> Report:
        return trio.run(self._reconcile, client)

    async def _reconcile(self, client: Remote | None) -> Report:
        with StateDB.open(self.state, map_size_bytes=1 << 26) as database:
            books = RootState(database)
            local = self.place.open(books, patterns=lambda: self.patterns)
            try:
                recent = self.root.recent_blocks
                options = Options(policy=Policy(host="here", utc="T"), hints=Hints(), recent=recent)
                async with ShareKeeper(self.index, books, local, BLOCK, recent).following():
                    report = await Cycle(local, client or self.client(), books, self.tidied, options).run()
                    self.at_end()
                return report
            finally:
                await local.close()

    def tells(self, data: bytes) -> bool:
        """Whether it has a block, by both ways to ask."""
        name = block_id(data)
        index: ShareIndex = self.root
        (told,) = index.match([name[:8]])
        given = index.read(name)
        assert given in (None, data)
        assert told or given is None
        return told


def block(number: int) -> bytes:
    return bytes([number]) * BLOCK


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Shared]]:
    made: list[Shared] = []
    container = MemoryContainer()

    def shared(name: str = "one", **options: str) -> Shared:
        made.append(Shared(new_place(tmp_path, name), container, **options))
        return made[-1]

    yield shared
    for each in made:
        each.root.close()


def write(shared: Shared, name: str, *numbers: int) -> None:
    target = shared.place.path / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"".join(block(number) for number in numbers))


def test_what_was_pushed_and_pulled_is_told_and_given(make: Callable[..., Shared]) -> None:
    one, two = make("one"), make("two")
    write(one, "folder/a", 1, 2, 3)
    write(one, "small", 4)
    assert not one.tells(block(1))
    one.reconcile()
    two.reconcile()
    for shared in (one, two):
        for number in (1, 2, 3, 4):
            assert shared.tells(block(number))
            assert shared.root.read(block_id(block(number))) == block(number)
        assert not shared.tells(block(5))


def test_a_file_that_was_not_pushed_is_not_told_of(make: Callable[..., Shared]) -> None:
    one = make()
    write(one, "a", 1)
    one.reconcile()
    write(one, "new", 2, 3)

    async def away(operation: str, path: RelPath) -> None:
        if operation == "store" and path == b"new":
            raise RemoteUnavailableError("away")

    with pytest.raises(RemoteUnavailableError):
        one.reconcile(MemoryClient(one.container, before=away))
    assert one.tells(block(1))
    assert not one.tells(block(2))
    assert one.root.read(block_id(block(2))) is None


def test_what_was_written_since_the_last_cycle_is_not_given(make: Callable[..., Shared]) -> None:
    """The index says what the file had; its bytes are compared with the id that is asked for."""
    one = make()
    write(one, "a", 1, 2)
    one.reconcile()
    write(one, "a", 1, 9)
    assert one.root.read(block_id(block(1))) == block(1)
    assert one.root.read(block_id(block(2))) is None
    assert not one.tells(block(9))


def test_an_ignored_file_is_not_told_of(make: Callable[..., Shared]) -> None:
    one = make()
    one.patterns = [b"*.tmp"]
    write(one, "a.tmp", 1)
    write(one, "b", 2)
    one.reconcile()
    assert [one.tells(block(number)) for number in (1, 2)] == [False, True]


def test_what_is_ignored_from_now_on_is_no_longer_told_of(make: Callable[..., Shared]) -> None:
    one = make()
    write(one, "a.tmp", 1, 2)
    write(one, "b", 3)
    one.reconcile()
    assert one.tells(block(1))
    one.patterns = [b"*.tmp"]
    one.reconcile()
    assert [one.tells(block(number)) for number in (1, 2, 3)] == [False, False, True]


def test_what_is_in_the_trash_is_not_told_of(make: Callable[..., Shared]) -> None:
    one, two = make("one"), make("two")
    write(one, "a", 1, 2)
    write(one, "b", 3)
    one.reconcile()
    two.reconcile()
    assert two.tells(block(1))
    (one.place.path / "a").unlink()
    one.reconcile()
    two.reconcile()
    trash = two.place.path / ".blocksync" / "trash"
    assert any(path.read_bytes() == block(1) + block(2) for path in trash.rglob("*") if path.is_file())
    assert [two.tells(block(number)) for number in (1, 2, 3)] == [False, False, True]
    assert two.root.read(block_id(block(1))) is None


def test_a_replaced_version_is_not_told_of(make: Callable[..., Shared]) -> None:
    one, two = make("one"), make("two")
    write(one, "a", 1, 2)
    one.reconcile()
    two.reconcile()
    write(one, "a", 1, 3)
    one.reconcile()
    two.reconcile()
    for shared in (one, two):
        assert [shared.tells(block(number)) for number in (1, 2, 3)] == [True, False, True]


def test_other_folders_of_the_container_are_not_told_of(make: Callable[..., Shared]) -> None:
    whole, part = make("whole"), make("part", prefix="inside")
    write(whole, "inside/a", 1, 2)
    write(whole, "beside/b", 3, 4)
    whole.reconcile()
    part.reconcile()
    assert [part.tells(block(number)) for number in (1, 2, 3, 4)] == [True, True, False, False]


def test_a_paused_root_tells_nothing(make: Callable[..., Shared]) -> None:
    one = make()
    write(one, "a", 1)
    one.reconcile()
    one.root.recent_blocks.use(lambda _: block(2))
    one.root.recent_blocks.came([block_id(block(2))])
    one.paused = True
    assert not one.tells(block(1))
    assert not one.tells(block(2))
    assert one.root.recent(0) == (0, ())
    one.paused = False
    assert one.tells(block(1))
    assert one.tells(block(2))


def test_a_file_in_the_folder_that_never_was_in_the_share_is_not_given(make: Callable[..., Shared]) -> None:
    """Two roots of one machine: who proved the key of one learns nothing of the other."""
    one, other = make("one"), make("other", prefix="else")
    write(one, "a", 1)
    write(other, "b", 2)
    one.reconcile()
    other.reconcile()
    assert not one.tells(block(2))
    assert not other.tells(block(1))


def test_what_a_cycle_got_is_told_and_given_until_its_index_has_it(make: Callable[..., Shared]) -> None:
    """Who was told of a block asks for it at any time: one that lacks what it offers is left alone for a minute."""
    one, two = make("one"), make("two")
    write(one, "image", 1, 2)
    write(one, "small", 3)
    one.reconcile()
    asked: list[bool] = []
    two.at_end = lambda: asked.extend(two.tells(block(number)) for number in (1, 2, 3))
    two.reconcile()
    assert asked == [True, True, True]
    assert two.root.recent_blocks.since(0)[1] == []
    assert [two.tells(block(number)) for number in (1, 2, 3)] == [True, True, True]


def test_what_a_cycle_is_getting_is_told_until_it_ends(make: Callable[..., Shared]) -> None:
    one = make()
    came = {block_id(block(number)): block(number) for number in (5, 6)}
    one.root.recent_blocks.use(came.get)
    assert one.root.recent(0) == (0, [])
    one.root.recent_blocks.came(came)
    number, ids = one.root.recent(0)
    assert list(ids) == list(came)
    assert one.root.recent(number) == (number, [])
    assert one.tells(block(5))
    one.root.recent_blocks.use(None)
    assert not one.tells(block(5))
    assert one.root.read(block_id(block(5))) is None


def test_a_lost_index_is_made_anew_and_a_damaged_one_answers_nothing(make: Callable[..., Shared]) -> None:
    one = make()
    write(one, "a", 1, 2)
    one.reconcile()
    assert one.tells(block(2))
    IdIndex.remove(one.index)
    assert not one.tells(block(2))
    one.reconcile()
    assert one.tells(block(2))
    one.root.close()
    Path(one.index, "data.mdb").write_bytes(b"rubbish" * 4096)
    assert not one.tells(block(2))
    one.reconcile()
    assert one.tells(block(2))


def test_a_folder_that_is_away_gives_nothing(make: Callable[..., Shared]) -> None:
    one = make()
    write(one, "a", 1)
    one.reconcile()
    (one.place.path).rename(one.place.path.with_name("away"))
    assert one.root.read(block_id(block(1))) is None


def test_a_link_in_the_place_of_a_file_is_not_followed(make: Callable[..., Shared]) -> None:
    one = make()
    write(one, "a", 1)
    one.reconcile()
    outside = one.place.path.with_name("outside")
    outside.write_bytes(block(1))
    (one.place.path / "a").unlink()
    (one.place.path / "a").symlink_to(outside)
    assert one.root.read(block_id(block(1))) is None


def test_nothing_is_open_while_nobody_asks(make: Callable[..., Shared]) -> None:
    """An open folder would keep its disk from being unmounted."""
    one = make()
    write(one, "a", 1)
    one.reconcile()
    assert one.tells(block(1))
    one.root.rest()
    root = os.stat(one.place.path)
    for number in os.listdir("/proc/self/fd"):
        with_fd = Path("/proc/self/fd", number)
        try:
            found = os.stat(with_fd)
        except OSError:
            continue
        assert (found.st_dev, found.st_ino) != (root.st_dev, root.st_ino)
