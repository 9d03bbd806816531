"""What six devices share: a container of our server, or a repository on a real Swift."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Protocol

import msgspec
import trio

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.errors import MissingBlockError
from syncer.ports.orders import InMemory
from syncer.remote.repository import access, opening
from syncer.remote.repository.access import Access
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.entries import ID_BYTES, decode_entry
from syncer.remote.repository.format.history import commit_of
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import Content
from syncer.remote.repository.format.lists import chunks_of
from syncer.remote.repository.format.prolly import Root, reachable
from syncer.remote.repository.format.sealed import Kind
from syncer.remote.repository.maintenance.checking import Checker
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.stores.opening import make_store
from tests.kit.ports import free_port, free_ports
from tests.kit.repositories import GRID, PASSPHRASE, make_repository, password_file
from tests.kit.starting import PROJECT
from tests.kit.swift import KEY, USER

_BLOCKSYNC: Final = str(Path(sys.executable).with_name("blocksync"))
_TOKEN: Final = "token-six six\n"


class SharedPlace(Protocol):
    """Where all devices meet."""

    url: str
    link: list[str]

    def restart(self) -> None:
        """Kill the server and start it again on its port."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...

    def skew(self, seconds: int) -> None:
        """In a device's process: its clock is wrong."""
        ...

    def settle(self) -> None:
        """Have listings tell all that is there: nobody is in trouble any more."""
        ...

    def lacks(self, versions: set[bytes]) -> set[bytes]:
        """Those of some contents that no version there has, of now or before. What is damaged there is an error."""
        ...

    def differs(self, files: dict[str, bytes]) -> set[str]:
        """Paths at which there is something else for a new device than these files."""
        ...


class Served:
    """A container of `blocksync serve`."""

    def __init__(self, home: Path) -> None:
        self._store, self._token, self._port = home / "store", home / "tokens", free_port()
        self._token.write_text(_TOKEN)
        self._server = self._serve()
        self.url = f"pithos+http://127.0.0.1:{self._port}/v1/six/share"
        self.link = ["--token-file", str(self._token)]

    def _serve(self) -> subprocess.Popen[str]:
        listen = ["--listen", f"127.0.0.1:{self._port}"]
        command = [_BLOCKSYNC, "serve", self._store, *listen, "--token-file", self._token]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        assert any("listening on " in line for line in process.stdout), "the server ended before it was ready"
        return process

    def restart(self) -> None:
        self.close()
        self._server = self._serve()

    def close(self) -> None:
        self._server.kill()
        self._server.wait()
        assert self._server.stdout is not None
        self._server.stdout.close()

    def skew(self, seconds: int) -> None:
        """Nothing that it tells the server has a time of its own."""

    def settle(self) -> None:
        """They always do."""

    def lacks(self, versions: set[bytes]) -> set[bytes]:
        if not versions:
            return set()
        blocks = BlockDirectory.open(str(self._store / "blocks"), read_only=True)

        def has(version: bytes) -> bool:
            try:
                blocks.get(block_id(version))
            except MissingBlockError:
                return False
            return True

        return {version for version in versions if not has(version)}

    def differs(self, files: dict[str, bytes]) -> set[str]:
        """Whoever is at rest has what the server has: it has one tree."""
        del files
        return set()


class OnSwift:
    """A repository in a container of a real Swift."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "swift"
        self._folder.mkdir()
        self._start("start", "--port", str(free_ports(4)))  # each of its servers has one, also after a restart
        self._address = json.loads((self._folder / "state.json").read_text())["url"]
        os.environ.update(ST_AUTH=f"{self._address}/auth/v1.0", ST_USER=USER, ST_KEY=KEY)
        self.url = f"swift://{self._address.partition('://')[2]}/six"
        self.link = ["--password-file", str(password_file(home))]
        make_repository(self.url)

    def _start(self, *command: str) -> None:
        settings = [sys.executable, str(PROJECT / "scripts/swift"), "--no-fsync", "--dir", str(self._folder)]
        subprocess.run([*settings, *command], check=True, stdout=subprocess.DEVNULL)

    def restart(self) -> None:
        self._start("stop")
        self._start("start", "--port", self._address.rpartition(":")[2])

    def close(self) -> None:
        self._start("stop")

    def settle(self) -> None:
        self._start("tick")  # what an overloaded container server did not take lies with the objects until then

    def skew(self, seconds: int) -> None:
        def now_ns() -> int:
            return time.time_ns() + seconds * 10**9

        access.RepositoryClient = functools.partial(RepositoryClient, clock_ns=now_ns)  # type: ignore[misc, assignment]

    def lacks(self, versions: set[bytes]) -> set[bytes]:
        return versions - trio.run(self._contents)

    def differs(self, files: dict[str, bytes]) -> set[str]:
        """All heads merge to one tree, which is theirs."""
        return trio.run(self._differs, files)

    async def _differs(self, files: dict[str, bytes]) -> set[str]:
        store = make_store(self.url)
        try:
            await store.open()
            kept = await opening.unlock(store, PASSPHRASE)
            objects = Objects(store, Access(kept=kept, environment={}).keys)
            assert len(await objects.heads()) > 1
            client = RepositoryClient(objects, kept.config, Writer(device=kept.device, name="new", tool="test"))
            stats = (await client.list_objects()).objects
            there = {stat.path.decode(): stat.content for stat in stats if stat.content is not None}
        finally:
            await store.close()
        expected = {path: InMemory.of(data, GRID).content for path, data in files.items()}
        return {path for path in there.keys() | expected.keys() if there.get(path) != expected.get(path)}

    async def _contents(self) -> set[bytes]:
        """Of all commits that are there, whoever made them; and that nothing of them is damaged."""
        store = make_store(self.url)
        try:
            await store.open()
            keys = Access(kept=await opening.unlock(store, PASSPHRASE), environment={}).keys
            problems = (await Checker(Objects(store, keys), GRID, share=1.0).run()).problems
            assert not problems, problems
            objects = Objects(store, keys)
            await objects.look()
            names = [commit_of(blob.name) for blob in await store.listing(Kind.COMMIT.folder)]
            commits = await objects.commits([name for name in names if name is not None])
            roots = [msgspec.msgpack.decode(each.root, type=Root) for each in commits.values() if each.root]
            chunks = await trio.to_thread.run_sync(_chunks, ThreadNodes(objects), roots)
            return set((await objects.read(Content.FILES, chunks)).values())
        finally:
            await store.close()


def _chunks(nodes: ThreadNodes, roots: list[Root]) -> set[Found]:
    """Of all files of some trees; each is a content, as these are short."""
    found: set[Found] = set()
    known: set[bytes] = set()
    for root in roots:
        for _, leaf in reachable(nodes, root, known):  # type: ignore[arg-type]
            for key, value in leaf:
                file = decode_entry(key, value).file if len(key) > ID_BYTES else None
                if file is not None:
                    found.update(Found(chunk.pack, chunk.entry) for chunk in chunks_of(nodes, file))
    return found


PLACES: Final[dict[str, type[Served | OnSwift]]] = {"served": Served, "swift": OnSwift}
