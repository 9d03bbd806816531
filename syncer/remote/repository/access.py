"""What a linked root keeps of a repository, so that no later command asks for a passphrase or for credentials.

As secret as the passphrase: a file that nobody else may read. JSON:

    {"format": 1, "kept": {…, see `opening.Kept`}, "environment": {"OS_USERNAME": "…", …}}

environment: the variables that led to the store when the root was linked (`stores.environment`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from blockfs.build import release
from syncer.errors import CorruptionError, FormatTooNewError, NotFoundError
from syncer.remote.http.retry import RetryPolicy
from syncer.remote.http.transport import HttpSettings
from syncer.remote.repository.client import RepositoryClient, Writer
from syncer.remote.repository.format.history import DEVICE_BYTES, DeviceId
from syncer.remote.repository.format.keys import Keys, MasterKey, derive
from syncer.remote.repository.format.sealed import Kind
from syncer.remote.repository.headless import Headless, heads_there
from syncer.remote.repository.memory import MemoryFile, Own
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.opening import Kept, check, repository_there, unlock
from syncer.remote.stores.caching import CachedStore
from syncer.remote.stores.environment import environment_for
from syncer.remote.stores.opening import StoreSettings, make_store
from syncer.remote.stores.port import BlobStore, StoreInfo
from syncer.remote.stores.urls import parse_store_url

_FORMAT = 1
_CACHED = [kind.folder for kind in (Kind.COMMIT, Kind.CONDEMNED, Kind.INDEX, Kind.PACK)]  # of packs those of trees
_WHAT = "what is kept of the repository"
_CACHE_BYTES = 1 << 30  # indexes of 20 million chunks, 400 GB of files; the largest that is kept is an eighth of it


class Access(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What opens a repository, and its store.

    Attributes:
        format: Of this value's text.
        kept: The key, and this device's id.
        environment: Variables that lead to the store.
    """

    kept: Kept
    environment: dict[str, str] = {}
    format: int = _FORMAT

    def __repr__(self) -> str:
        return f"Access({self.kept!r})"  # neither keys nor passwords reach a log

    @property
    def text(self) -> str:
        """As a file has it."""
        return msgspec.json.encode(self).decode()

    @property
    def keys(self) -> Keys:
        """The repository's keys."""
        return derive(MasterKey(self.kept.master), self.kept.repository)

    @classmethod
    def read(cls, text: str) -> Access:
        """Reverse of `text`.

        Raises:
            CorruptionError: It is none.
            FormatTooNewError: A newer blocksync's.
        """
        try:
            found = msgspec.json.decode(text, type=_Format).format
            if found > _FORMAT:
                raise FormatTooNewError(_WHAT, found, _FORMAT)
            access = msgspec.json.decode(text, type=cls)
            Kept.read(access.kept.text)  # lengths
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise CorruptionError(f"{_WHAT} is damaged; run `blocksync link` again, with --relink") from None
        return access


def store_of(
    url: str,
    environment: Mapping[str, str],
    *,
    settings: HttpSettings | None = None,
    policy: RetryPolicy | None = None,
    token_file: str | None = None,
) -> BlobStore:
    """The store of a repository, by credentials that were kept; see `make_store`, `StoreSettings`."""
    http = HttpSettings() if settings is None else settings
    how = StoreSettings(
        http=http,
        patience=RetryPolicy() if policy is None else policy,
        limit_up=http.limit_up,
        limit_down=http.limit_down,
        poll_s=http.poll_s,
        token_file=token_file,
    )
    return make_store(url, how, environment_for(url, os.environ, environment))


def open_repository(
    url: str,
    access: Access,
    *,
    settings: HttpSettings | None = None,
    policy: RetryPolicy | None = None,
    memory: str | None = None,
    cache: str | None = None,
    token_file: str | None = None,
) -> RepositoryClient:
    """A client of a repository whose key is kept; nothing is sent yet.

    Args:
        url: See `stores.urls`.
        access: What is kept.
        settings: How to talk, and how fast at most.
        policy: Of each request.
        memory: See `open.Way`.
        cache: The same. A directory of this machine is read as quickly as a cache.
        token_file: The same.

    Raises:
        UsageError: No credentials, or a library is missing.
    """
    store = store_of(url, access.environment, settings=settings, policy=policy, token_file=token_file)
    is_far = parse_store_url(url).scheme != "file"
    kept = CachedStore(store, cache, _CACHE_BYTES, _CACHED) if cache is not None and is_far else None
    writer = Writer(device=DeviceId(access.kept.device), name=socket.gethostname(), tool=release())
    return RepositoryClient(
        Objects(store, access.keys, cache=kept),
        access.kept.config,
        writer,
        check=partial(check, store, access.kept),
        memory=None if memory is None else MemoryFile(memory, writer.device),
    )


async def repository_at(
    url: str, environment: Mapping[str, str], settings: HttpSettings, kept: Kept | None = None
) -> bytes:
    """The id of the repository at a URL, 16 bytes; that it is the one that is kept is proved, if it says so.

    Args:
        url: See `stores.urls`.
        environment: See `Access`.
        settings: How to talk.
        kept: What is kept; None: nothing is.

    Raises:
        NotFoundError: There is no repository at all.
        DamagedObjectError: What says so is damaged.
        FormatTooNewError: A newer blocksync's.
    """
    store = store_of(url, environment, settings=settings)
    try:
        _, repository = await open_store(store, url)
        if kept is not None and kept.repository == repository:
            await check(store, kept)
        return repository
    finally:
        await store.close()


async def unlocked(url: str, environment: Mapping[str, str], settings: HttpSettings, secret: str) -> Kept:
    """Open the repository at a URL by a passphrase or a recovery key, as a new device.

    Raises:
        AuthError, DamagedObjectError, UsageError: See `opening.unlock`.
    """
    store = store_of(url, environment, settings=settings)
    try:
        await open_store(store, url)
        return await unlock(store, secret)
    finally:
        await store.close()


async def has_lost_heads(url: str, access: Access, settings: HttpSettings) -> bool:
    """Whether the repository at a URL has commits, and has lost the heads that say which is the last.

    Args:
        url: See `stores.urls`.
        access: What opens it.
        settings: How to talk.

    Raises:
        SyncerError: The store can't be asked, or what it has is damaged.
    """
    store = store_of(url, access.environment, settings=settings)
    try:
        await open_store(store, url)
        _, standing = await heads_there(Objects(store, access.keys))
        return standing is Headless.LOST
    finally:
        await store.close()


def agree(path: str, access: Access) -> None:
    """Have a device that has written nothing yet go on without the heads that are lost.

    Args:
        path: Of the file in which it remembers its head.
        access: What it keeps.
    """
    device = DeviceId(access.kept.device)
    MemoryFile(path, device).write(Own(device=device, agreed=True))


def another_device(kept: Kept) -> Kept:
    """The same key for a device that the repository does not know yet."""
    return replace(kept, device=DeviceId(os.urandom(DEVICE_BYTES)))


async def open_store(store: BlobStore, url: str) -> tuple[StoreInfo, bytes]:
    """Open a store that should hold a repository.

    Args:
        store: Its first call.
        url: As messages name it.

    Returns:
        What the store says of itself, and the id of the repository there.

    Raises:
        NotFoundError: There is no store, or no repository; says what makes one.
        SyncerError: See `BlobStore.open` and `opening.repository_there`.
    """
    remedy = f"`blocksync repo init {url}` makes one"
    try:
        info = await store.open()
    except NotFoundError as error:
        raise NotFoundError(f"no repository at {url} ({error}); {remedy}") from None
    try:
        return info, await repository_there(store)
    except NotFoundError:
        raise NotFoundError(f"there is no repository at {url}; {remedy}") from None


class _Format(msgspec.Struct):
    format: int
