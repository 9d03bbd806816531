"""What a remote promises of writes, as the engine relies on it, on every remote: pins R1, R2 and R9.

Seen through cycles of devices and what they book, so it holds whatever the interface of a remote is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Final, TypeVar

import pytest
import trio
from msgspec.structs import replace

from syncer.core.model import Action, Node, RemoteTag, Side
from syncer.engine.report import Report
from syncer.errors import RemoteUnavailableError, SyncerError
from syncer.ports.remote import Counters, Remote
from syncer.protocol.pithos.headers import EXTENSION_BULK
from syncer.remote.http.retry import Retry
from syncer.remote.http.transport import HttpSettings, HttpTransport, Reply, ReplyLostError, Request
from syncer.remote.pithos.client import PithosClient
from syncer.remote.repository.client import RepositoryClient
from syncer.remote.stores.port import MAX_BLOB_BYTES, Blob, BlobStore
from syncer.remote.stores.wrapped import WrappedStore
from syncer.remote.url import parse_url
from tests import effort
from tests.contract.blobplaces import place_of
from tests.contract.remotes import (
    BLOCK,
    QUICK,
    STORES,
    FakeRemote,
    MemoryRemote,
    RepositoryRemote,
    ServeRemote,
    Subject,
)
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.kit.user import User
from tests.unit.syncer.engine.devices import Device
from tests.unit.syncer.local.folders import new_place, noise

T = TypeVar("T")
ROUNDS: Final = effort.count("versions of a share")
DEATHS: Final = effort.count("servers that go away")
NEVER: Final = 1 << 30
WRITES: Final = frozenset({"store", "move", "delete", "set_meta"})


OF_A_REPOSITORY: Final = ["memory", *effort.first("stores of the contract suites", STORES)]


@pytest.fixture(params=["memory", "fake", "serve", *(f"repository on {kind}" for kind in OF_A_REPOSITORY)])
def remote(
    request: pytest.FixtureRequest, remotes: dict[str, Subject], tmp_path_factory: pytest.TempPathFactory
) -> Subject:
    _, _, kind = request.param.partition("repository on ")
    if not kind:
        return remotes[request.param]
    new_place = None if kind == "memory" else lambda: place_of(kind, request, tmp_path_factory)
    return RepositoryRemote(new_place, kind=RepositoryClient)  # the engine itself commits


class Way(Enum):
    """How a server goes away at a message."""

    BEFORE = "request lost"  # and all later ones
    AFTER = "reply lost"  # and all later messages
    ONCE = "falters"  # only this message does not arrive


@dataclass
class Death:
    """A server that goes away, and when."""

    at: int = NEVER
    way: Way = Way.BEFORE
    seen: int = 0
    heard: int = 0  # writes of which the reply was heard, if the server is one in memory

    def leaves(self) -> bool:
        """Count a message; whether it is carried out."""
        self.seen += 1
        if self.way is Way.ONCE:
            return self.seen != self.at
        return self.seen < self.at or (self.seen == self.at and self.way is Way.AFTER)

    def arrives(self) -> bool:
        """Whether its reply is heard."""
        return self.seen < self.at or self.way is Way.ONCE


class Wire:
    """A transport to a server that goes away."""

    def __init__(self, inner: HttpTransport, death: Death) -> None:
        self._inner, self._death = inner, death

    async def send(self, request: Request) -> Reply:
        if not self._death.leaves():
            raise ReplyLostError("gone")
        with trio.CancelScope(shield=True):  # else the server might carry it out while the next cycle looks
            reply = await self._inner.send(request)
        if not self._death.arrives():
            raise ReplyLostError("gone")
        return reply

    def close(self) -> None:
        self._inner.close()


class WireOfStore(WrappedStore):
    """A store that goes away."""

    def __init__(self, inner: BlobStore, death: Death) -> None:
        super().__init__(inner)
        self._death = death

    async def get(self, name: str, span: tuple[int, int] | None = None, *, most_bytes: int = MAX_BLOB_BYTES) -> bytes:
        return await self._sent(lambda: self.inner.get(name, span, most_bytes=most_bytes))

    async def put(self, name: str, data: bytes | Sequence[bytes], *, absent: bool = False) -> bool:
        return await self._sent(lambda: self.inner.put(name, data, absent=absent))

    async def head(self, name: str) -> Blob | None:
        return await self._sent(lambda: self.inner.head(name))

    async def listing(self, *prefixes: str) -> list[Blob]:
        return await self._sent(lambda: self.inner.listing(*prefixes))

    async def _sent(self, call: Callable[[], Awaitable[T]]) -> T:
        if not self._death.leaves():
            raise RemoteUnavailableError("gone")
        with trio.CancelScope(shield=True):  # else the store might carry it out while the next cycle looks
            found = await call()
        if not self._death.arrives():
            raise ReplyLostError("gone")
        return found


def client_of(device: Device, remote: Subject) -> Remote:
    """Of a repository each device is one, in all its cycles."""
    return remote.client(number=number_of(device)) if isinstance(remote, RepositoryRemote) else remote.client()


def number_of(device: Device) -> int:
    return 1 + hashlib.sha256(device.name.encode()).digest()[0] % 200


def mortal(device: Device, remote: Subject, death: Death) -> Remote:
    """A client of a server that goes away."""
    if isinstance(remote, RepositoryRemote):
        return remote.client(WireOfStore(remote.store(), death), number_of(device))
    if isinstance(remote, FakeRemote | ServeRemote):
        url, counters = parse_url(remote.url), Counters()
        transport = Wire(HttpTransport(url, remote.token, HttpSettings(), counters), death)
        return PithosClient(url, transport, Retry(policy=QUICK, draw=lambda: 0.5, host="test"), counters, 4)
    assert isinstance(remote, MemoryRemote)

    async def before(_operation: str, _path: object) -> None:
        if not death.leaves():
            raise RemoteUnavailableError("gone")

    async def after(operation: str, _path: object) -> None:
        if not death.arrives():
            raise RemoteUnavailableError("gone")
        death.heard += operation in WRITES

    return MemoryClient(remote.container, before=before, after=after)


def cycle(device: Device, remote: Subject, death: Death | None = None) -> Report:
    """One cycle of a device; what it raises is raised."""

    async def main() -> Report:
        client = mortal(device, remote, death) if death is not None else client_of(device, remote)
        try:
            with trio.fail_after(60):
                if not device.state.rows_now:
                    await client.open(create=True)
                return await device.cycle(client=client)
        finally:
            await client.close()

    return trio.run(main)


def on(home: Path, name: str) -> Device:
    return Device(name, new_place(home, name), MemoryContainer())  # its container is not used


# --- R1


def changed(home: Path, remote: Subject) -> tuple[Device, int]:
    """A device of a new container, with something of each kind to tell the server; and the last version made there."""
    remote.new_container()
    if isinstance(remote, MemoryRemote):
        remote.container.extensions |= {EXTENSION_BULK}  # many are written at once
    home.mkdir()
    device = on(home, "device")
    for number in range(6):
        device.write(f"old/{number}", b"%d" % number)
    device.write("large", noise(1, 3 * BLOCK))
    device.write("moves", b"moves")
    cycle(device, remote)
    last = max(row.remote.version for row in device.state.rows_now.values() if row.remote is not None)
    for number in range(8):
        device.write(f"new/{number}", b"new %d" % number)
    for number in range(2):
        device.write(f"new-large-{number}", noise(2 + number, 2 * BLOCK + 5))
        (device.path / f"old/{number}").unlink()
    device.write("large", noise(1, BLOCK) + noise(9, 2 * BLOCK))
    device.write("old/3", b"three")
    (device.path / "old/4").chmod(0o600)
    (device.path / "link").symlink_to("large")
    (device.path / "moves").rename(device.path / "moved")
    return device, last


def did(device: Device) -> Counter[object]:
    """What was told of the last cycle as done on the server."""
    return Counter(_named(action) for action in device.ears.actions if action.side is Side.REMOTE)


def _named(action: Action) -> object:
    return type(action).__name__, action.path


def next_version(device: Device, remote: Subject) -> int:
    """The version of one more write."""
    device.write("last", b"last")
    cycle(device, remote)
    (made,) = [row.remote for row in device.state.rows_now.values() if row.node.name == b"last"]
    assert made is not None
    return made.version


@pytest.mark.parametrize(
    ("remote", "way"),
    [*product(["memory", "fake", "serve"], [Way.BEFORE, Way.AFTER]), ("memory", Way.ONCE)],  # the others ask again
    indirect=["remote"],
    ids=str,
)
def test_each_outcome_of_a_write_is_told_once_also_when_the_server_goes_away(
    tmp_path: Path, remote: Subject, way: Way
) -> None:
    """R1. Breaks when what a server did is not booked because a write beside it failed, or is told or done twice."""
    whole = Death()
    device, last = changed(tmp_path / "whole", remote)
    assert not cycle(device, remote, whole).failures
    planned, names, versions = did(device), device.everything().keys(), next_version(device, remote) - last
    assert set(planned.values()) == {1}
    deaths = DEATHS * (2 if remote.name == "memory" else 1)  # there they cost next to nothing
    for number in range(deaths):
        at = 1 + (whole.seen - 1) * (2 * number + 1) // (2 * deaths)
        device, last = changed(tmp_path / f"{number}", remote)
        death = Death(at, way)
        try:
            cycle(device, remote, death)
        except SyncerError:
            told = did(device)
            assert set(told.values()) <= {1}
            assert told.keys() <= planned.keys()
            assert told.total() == death.heard or remote.name != "memory", f"message {at}: not told"
        else:
            told = did(device)
            assert told == planned
        assert not device.ears.failures
        assert not cycle(device, remote).failures
        assert not told & did(device), f"message {at}: done a second time"
        assert did(device).keys() <= planned.keys()  # what was done and not heard is only booked
        assert device.everything().keys() == names
        assert next_version(device, remote) - last == versions, f"message {at}: a write was lost or repeated"


# --- R1 and R2, where writes are held back


@pytest.mark.parametrize(
    ("remote", "way"),
    [*product([f"repository on {kind}" for kind in OF_A_REPOSITORY], Way)],
    indirect=["remote"],
    ids=str,
)
def test_what_a_repository_was_told_is_booked_if_it_is_committed_whichever_message_is_the_last(
    tmp_path: Path, remote: Subject, way: Way
) -> None:
    """R1, R2. Breaks when a row speaks of what no commit has, or what a commit has is done a second time."""
    whole = Death()
    device, _ = changed(tmp_path / "whole", remote)
    assert not cycle(device, remote, whole).failures
    names = device.everything().keys()
    assert whole.seen > 10
    deaths = min(whole.seen, share_of(DEATHS * 4, remote))
    for number in range(deaths):
        at = 1 + (whole.seen - 1) * (2 * number + 1) // (2 * deaths)
        device, _ = changed(tmp_path / f"{number}", remote)
        before = tags_of(remote)
        with suppress(SyncerError):
            cycle(device, remote, Death(at, way))
        rows = {row.remote for row in device.state.rows_now.values() if row.remote is not None}
        assert rows <= before | tags_of(remote), f"message {at}: a row speaks of what is not there"
        assert not device.ears.failures
        assert not cycle(device, remote).failures
        cycle(device, remote)
        assert not did(device), f"message {at}: not at rest"
        assert device.everything().keys() == names, f"message {at}: something is there twice, or gone"
        newcomer = on(tmp_path, f"newcomer {number}")
        cycle(newcomer, remote)
        assert newcomer.contents() == device.contents()


def share_of(count: int, remote: Subject) -> int:
    """On stores that are not in memory a repository does an eighth: it is the same, and there are four of them."""
    is_slow = isinstance(remote, RepositoryRemote) and not remote.is_in_memory
    return max(1, count // 8) if is_slow else count


def tags_of(remote: Subject) -> set[RemoteTag]:
    """All versions that are there."""

    async def main() -> set[RemoteTag]:
        client = remote.client()
        try:
            await client.open()
            return {stat.tag for stat in (await client.list_objects()).objects}
        finally:
            await client.close()

    return trio.run(main)


# --- R9


def test_one_version_of_the_remote_is_one_content_with_its_metadata(tmp_path: Path, remote: Subject) -> None:
    """R9. Breaks when a tag stays while what it names changes: a device would take another's change for its own."""
    remote.new_container()
    devices = [on(tmp_path, "first"), on(tmp_path, "second")]
    users = [User(seed, device.path) for seed, device in enumerate(devices)]
    named: dict[RemoteTag, object] = {}

    def note(device: Device) -> None:
        for row in device.state.rows_now.values():
            if row.remote is not None:
                assert named.setdefault(row.remote, _of(row.node)) == _of(row.node), row

    rounds = max(4, share_of(ROUNDS, remote))
    for number in range(rounds):
        for user, device in zip(users, devices, strict=True):
            for _ in range(2 + number % 3):
                user.step()
            cycle(device, remote)
            note(device)
    for device in devices * 2:
        cycle(device, remote)
        note(device)
    newcomer = on(tmp_path, "newcomer")  # has what it booked from the remote alone
    cycle(newcomer, remote)
    note(newcomer)
    assert newcomer.contents() == devices[0].contents() == devices[1].contents()
    assert len(named) > 3 * rounds


def _of(node: Node) -> object:
    return node.kind, node.content, node.target, replace(node.meta, special=node.meta.special or 0)
