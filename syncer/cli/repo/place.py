"""The repository that a command is about: its URL, the way there, what opens it, and its objects when it is open."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

import click
import msgspec
import trio
from msgspec.structs import replace

from blockfs.cli.parameters import progress
from syncer.cli.limits import NO_LIMITS, Limits, limit_options
from syncer.cli.passphrase import PASSWORD_FILE_HELP, is_given, repository_secret
from syncer.cli.registry.repositories import KeptKey, find_store, keys_kept_for
from syncer.cli.registry.roots import Registry
from syncer.remote.parallel import one_error
from syncer.remote.repository.access import another_device, open_store, store_of
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.format.slots import Slot
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.opening import Kept, check, unlock_by
from syncer.remote.stores.opening import StoreSettings, make_store
from syncer.remote.stores.port import BlobStore, StoreInfo

T = TypeVar("T")

_CA_FILE_HELP: Final = "Trust these certificates (PEM) instead of the system's, for https."


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a repository is, and what the command line says of the way there.

    Attributes:
        url: As it was given.
        password_file: File with what opens it; None: not given.
        ca_file: Authorities to trust instead of the system's; None: the system's.
        limits: Of bandwidth.
    """

    url: str
    password_file: str | None = None
    ca_file: str | None = None
    limits: Limits = NO_LIMITS

    @property
    def canonical_url(self) -> str:
        """The URL as a root's record has it, however it was spelled."""
        return find_store(self.url, self.ca_file).url

    def store(self, key: KeptKey | None = None) -> BlobStore:
        """Its store; nothing is sent yet.

        Args:
            key: What a linked root keeps: by what led that one to the store. None: by the environment.

        Raises:
            UsageError: No such URL, its store has no TLS, or see `make_store`.
        """
        http = replace(
            find_store(self.url, self.ca_file).settings, limit_up=self.limits.up, limit_down=self.limits.down
        )
        if key is not None:
            settings = replace(http, ca_file=http.ca_file or key.ca_file)
            return store_of(self.url, key.access.environment, settings=settings)
        return make_store(self.url, StoreSettings(http=http, limit_up=self.limits.up, limit_down=self.limits.down))


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument URL, and the options that say how to get there; the command gets them as `place`."""

    @wraps(function)
    def with_place(
        *,
        url: str,
        password_file: str | None,
        ca_file: str | None,
        limit_up: str | None,
        limit_down: str | None,
        **others: object,
    ) -> object:
        limits = NO_LIMITS.overridden(limit_up, limit_down)
        return function(place=Place(url=url, password_file=password_file, ca_file=ca_file, limits=limits), **others)

    url = click.argument("url")
    password = click.option("--password-file", metavar="FILE", type=click.Path(), help=PASSWORD_FILE_HELP)
    authorities = click.option(
        "--ca-file", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help=_CA_FILE_HELP
    )
    return url(password(authorities(limit_options(with_place))))


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """One that is open.

    Attributes:
        url: As it was given.
        info: What its store says of itself.
        kept: Its key, and what holds for it; with an id for this run of the command.
        slot: The key slot that was opened; None: a linked root had the key itself.
        objects: What is in it.
    """

    url: str
    info: StoreInfo
    kept: Kept
    slot: Slot | None
    objects: Objects


def with_repository(place: Place, work: Callable[[Repository], Awaitable[T]], *, by_secret: bool = False) -> T:
    """Open a repository, and do something with it.

    Without a passphrase on the command line or in the environment the key counts that a root of this machine keeps
    which is linked to the same URL; without such a root the terminal is asked.

    Args:
        place: Where it is.
        work: What to do. The store is closed when it has ended.
        by_secret: It is about the key that opens it, so a root's will not do.

    Raises:
        SyncerError: No such store, no repository there, or no key opens it.
    """
    asks = by_secret or is_given(place.password_file, os.environ)
    found = [] if asks else keys_kept_for(place.canonical_url, Registry(os.environ))
    store = place.store(found[0] if found else None)

    async def run() -> T:
        info, repository = await open_store(store, place.url)
        kept = await _of_a_root(store, found, repository)
        slot: Slot | None = None
        if kept is None:
            secret = repository_secret(place.password_file, os.environ)  # of nothing there is none: asked for last
            with progress() as told:
                told("opening the repository")
                kept, slot = await unlock_by(store, secret)
        objects = Objects(store, derive(MasterKey(kept.master), kept.repository))
        return await work(Repository(url=place.url, info=info, kept=kept, slot=slot, objects=objects))

    return using(store, run)


async def _of_a_root(store: BlobStore, found: Sequence[KeptKey], repository: bytes) -> Kept | None:
    """What a linked root keeps of the repository that is there now; None: nothing, it may be another one by now."""
    kept = next((key.access.kept for key in found if key.access.kept.repository == repository), None)
    if kept is None:
        return None
    await check(store, kept)
    return another_device(kept)


def using(store: BlobStore, work: Callable[[], Awaitable[T]]) -> T:
    """Do something with a store, and close it."""

    async def run() -> T:
        try:
            return await work()
        finally:
            with trio.CancelScope(shield=True):
                await store.close()

    with one_error():
        return trio.run(run)
