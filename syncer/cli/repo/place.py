"""The repository that a command is about: its URL, the secret that opens it, and how both become its objects."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import click
import msgspec
import trio

from blockfs.runtime.units import parse_duration
from syncer.cli.passphrase import PASSWORD_FILE_HELP, repository_secret
from syncer.remote.parallel import one_error
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.format.slots import Slot
from syncer.remote.repository.objects import Objects
from syncer.remote.repository.opening import Kept, unlock_by
from syncer.remote.stores.opening import make_store
from syncer.remote.stores.port import BlobStore, StoreInfo

T = TypeVar("T")

url_argument: Final = click.argument("url")


def password_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `password_file` to a command."""
    option = click.option("--password-file", metavar="FILE", type=click.Path(), help=PASSWORD_FILE_HELP)
    return option(function)


def keep_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `keep` to a command."""
    option = click.option(
        "--keep", default="30d", metavar="TIME", help="Commits younger than that stay whole; default: 30d."
    )
    return option(function)


def keep_ns(text: str) -> int:
    """What `--keep` says.

    Raises:
        UsageError: No span of time.
    """
    return int(parse_duration(text) * 10**9)


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """One that is open.

    Attributes:
        url: As it was given.
        info: What its store says of itself.
        kept: Its key, and what holds for it; with an id for this run of the command.
        slot: The key slot that was opened.
        objects: What is in it.
    """

    url: str
    info: StoreInfo
    kept: Kept
    slot: Slot
    objects: Objects


def with_repository(url: str, password_file: str | None, work: Callable[[Repository], Awaitable[T]]) -> T:
    """Open a repository, and do something with it.

    Args:
        url: Where it is.
        password_file: As the command line says.
        work: What to do. The store is closed when it has ended.

    Raises:
        SyncerError: No such store, no repository there, or no key opens it.
    """
    store = make_store(url)
    secret = repository_secret(password_file, os.environ)

    async def opened(info: StoreInfo) -> T:
        kept, slot = await unlock_by(store, secret)
        objects = Objects(store, derive(MasterKey(kept.master), kept.repository))
        return await work(Repository(url=url, info=info, kept=kept, slot=slot, objects=objects))

    return with_store(store, opened)


def with_store(store: BlobStore, work: Callable[[StoreInfo], Awaitable[T]], *, create: bool = False) -> T:
    """Open a store, do something, and close it.

    Args:
        store: As `make_store` made it.
        work: What to do.
        create: Make the container or the directory if it is not there.
    """

    async def run() -> T:
        try:
            return await work(await store.open(create=create))
        finally:
            with trio.CancelScope(shield=True):
                await store.close()

    with one_error():
        return trio.run(run)
