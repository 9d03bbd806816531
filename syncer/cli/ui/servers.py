"""Servers that this user runs on this machine: `serve` notes where, and the page looks into their catalogues.

`$XDG_STATE_HOME/blocksync/servers/` has a file for each folder that is served. One that was killed leaves its own, so
whether a server runs is told by the lock of its folder, as it is to `serve` itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from blockfs.errors import NotFoundError
from blockfs.runtime.atomic import write_atomically
from blockfs.runtime.failures import said
from syncer.errors import EXPECTED
from syncer.protocol.jsontext import MALFORMED
from syncer.server.catalogue import histories
from syncer.server.catalogue.catalogue import Catalogue, Reading
from syncer.server.tokens import read_tokens
from syncer.ui.ports import AccountFacts, ContainerFacts, ServerFacts, StoreFacts

_SUFFIX: Final = ".json"


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What `serve` notes.

    Attributes:
        directory: What it serves, absolute.
        url: Where.
        token_file: Who may.
    """

    directory: str
    url: str
    token_file: str


@contextlib.contextmanager
def noted(folder: str, served: Served) -> Iterator[None]:
    """While it runs, a server is noted. That it can't be is no reason not to serve: nor is a name that is no UTF-8."""
    path = _path(folder, served.directory)
    with contextlib.suppress(OSError, UnicodeEncodeError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _clear(folder)
        write_atomically(path, msgspec.json.encode(served))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def servers(folder: str) -> list[ServerFacts]:
    """Those that run, by folder."""
    return [
        ServerFacts(ident=ident, directory=os.fsencode(served.directory), url=served.url)
        for ident, served in sorted(_running(folder), key=lambda each: each[1].directory)
    ]


def store(folder: str, ident: str) -> StoreFacts:
    """What a server keeps, and for whom.

    Raises:
        NotFoundError: It does not run any more.
        SyncerError, BlockfsError: Its catalogue can't be read.
    """
    served = next((each for name, each in _running(folder) if name == ident), None)
    if served is None:
        raise NotFoundError("this server does not run any more")
    return kept_in(served.directory, served.token_file)


def kept_in(directory: str, token_file: str, most: int | None = histories.MOST) -> StoreFacts:
    """What is in the folder of a server, whether it runs or not: `usage`, and the page. Reads rows of the catalogue.

    Args:
        directory: The folder.
        token_file: Where quotas are.
        most: Versions that are looked at; None: all that there are.

    Raises:
        SyncerError, BlockfsError: The catalogue can't be read.
    """
    trouble, quotas = "", dict[str, int]()
    try:
        quotas = read_tokens(token_file).quotas
    except EXPECTED as error:
        trouble = said(error)
    catalogue = Catalogue.open(os.path.join(directory, "catalogue"))
    accounts = []
    try:
        with catalogue.reading() as view:
            for name in sorted({key.decode("utf-8") for key, _ in view.rows("accounts")} | quotas.keys()):
                found, looked_at = _account(view, name, quotas.get(name, 0), most)
                most = None if most is None else most - looked_at
                accounts.append(found)
            versions = view.count("versions")
    finally:
        catalogue.close()
    return StoreFacts(
        block_size=catalogue.block_size,
        stored_bytes=_stored_bytes(directory),
        versions=versions,
        accounts=tuple(accounts),
        trouble=trouble,
    )


def _account(view: Reading, name: str, quota_bytes: int, most: int | None) -> tuple[AccountFacts, int]:
    found, total = [], 0
    for row, kept, looked_at in histories.all_kept(view, name, most):
        total += looked_at
        found.append(
            ContainerFacts(
                name=row.name,
                objects=row.count,
                size_bytes=row.size_bytes,
                modified_s=row.modified_us / 1e6,
                versions=kept.versions,
                old_bytes=kept.old_bytes,
                is_counted=kept.is_whole,
            )
        )
    return AccountFacts(name=name, quota_bytes=quota_bytes, containers=tuple(found)), total


def _running(folder: str) -> Iterator[tuple[str, Served]]:
    """What was noted, of servers that run."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            with contextlib.suppress(OSError, *MALFORMED), open(os.path.join(folder, entry), "rb") as file:
                served = msgspec.json.decode(file.read(), type=Served)
                if served.directory and _is_locked(served.directory):
                    yield entry.removesuffix(_SUFFIX), served


def _clear(folder: str) -> None:
    """Forget servers that were killed."""
    running = {ident for ident, _ in _running(folder)}
    for entry in os.listdir(folder):
        if entry.removesuffix(_SUFFIX) not in running:
            os.unlink(os.path.join(folder, entry))


def _is_locked(directory: str) -> bool:
    """Whether a server has a folder."""
    fd = os.open(os.path.join(directory, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _stored_bytes(directory: str) -> int:
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # collected just now
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total


def _path(folder: str, directory: str) -> str:
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return os.path.join(folder, digest + _SUFFIX)
