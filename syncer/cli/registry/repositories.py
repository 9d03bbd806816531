"""From the URL of an object store to a repository there, for who links a root to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import trio

from blockfs.runtime.mountinfo import is_below
from blockfs.runtime.output import shown
from syncer.cli.passphrase import repository_secret
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.errors import (
    CorruptionError,
    FormatTooNewError,
    HeadsMissingError,
    NotFoundError,
    RootIdentityError,
    UsageError,
)
from syncer.remote.http.transport import HttpSettings
from syncer.remote.kamaki.discovery import Storage
from syncer.remote.stores.urls import StoreUrl, is_store_url, parse_store_url

if TYPE_CHECKING:  # see `unlocked`
    from syncer.remote.repository.access import Access
    from syncer.remote.repository.opening import Kept


def find_store(url: str, ca_file: str | None) -> Storage:
    """The store that a user means; what opens the repository there is still to be found.

    Args:
        url: As given.
        ca_file: Authorities to trust instead of the system's; None: the system's.

    Raises:
        UsageError: No such URL, or one of a store without TLS.
    """
    parsed = _parsed(url)
    if ca_file is not None and parsed.scheme != "swift":
        raise UsageError(f"--ca-file is for swift:// and pithos+https:// URLs, not for {parsed.scheme}://")
    authorities = None if ca_file is None else os.path.abspath(os.path.expanduser(ca_file))
    return Storage(url=str(parsed), token="", settings=HttpSettings(ca_file=authorities))


def refuse_inside(registry: Registry, path: bytes, url: str) -> None:
    """Make sure that no root holds the objects of a repository in a directory, its own or another root's.

    Raises:
        UsageError: It would: each cycle would push what the cycle before has written.
    """
    pairs = [(path, url), *((path, root.record.url) for root in registry.all())]
    pairs += [(root.path, url) for root in registry.all()]
    for root, place in pairs:
        if not is_store_url(place) or (parsed := parse_store_url(place)).scheme != "file":
            continue
        folder = os.path.realpath(os.fsencode(parsed.path))
        if folder == root or is_below(folder, root) or is_below(root, folder):
            raise UsageError(
                f"{shown(root)} and the repository {place} lie in each other: each cycle would find what the one "
                "before has written; put one of them elsewhere"
            )


def unlocked(
    remote: Storage,
    known: LinkedRoot | None,
    password_file: str | None,
    environ: Mapping[str, str],
    *,
    anew: bool,
) -> str:
    """What a root keeps to open the repository: by the key that it has already, else by a passphrase.

    Args:
        remote: The store.
        known: The root, if it is linked to this URL already.
        password_file: See `repository_secret`.
        environ: The environment, with the store's credentials.
        anew: It becomes another device.

    Raises:
        NotFoundError: There is no repository.
        RootIdentityError: It is another one than was linked.
        AuthError: The secret opens none of its keys.
        UsageError: No passphrase, no credentials.
        SyncerError: See `make_store`, `opening.unlock`.
    """
    # What opens repositories takes a tenth of a second to load.
    from syncer.remote.repository import access  # noqa: PLC0415 - see above
    from syncer.remote.stores.environment import kept_environment  # noqa: PLC0415 - see above

    environment = kept_environment(remote.url, environ)
    kept = None if known is None else _kept(known)
    # Before anybody is asked for a passphrase: of nothing there is none.
    there = trio.run(access.repository_at, remote.url, environment, remote.settings, kept)
    if kept is not None and there != kept.repository and not anew:
        raise RootIdentityError("the repository", kept.repository.hex(), there.hex())
    if kept is None or there != kept.repository:
        secret = repository_secret(password_file, environ)
        kept = trio.run(access.unlocked, remote.url, environment, remote.settings, secret)
    elif anew:
        kept = access.another_device(kept)
    return access.Access(kept=kept, environment=environment).text


def has_lost_heads(remote: Storage, *, agreed: bool) -> bool:
    """Whether a repository looks empty because its heads are gone.

    Args:
        remote: The store, with what opens the repository.
        agreed: It is to be used all the same.

    Raises:
        HeadsMissingError: It does, and nobody has agreed.
        SyncerError: See `access.has_lost_heads`.
    """
    from syncer.remote.repository import access  # noqa: PLC0415 - see `unlocked`
    from syncer.remote.repository.headless import LOST  # noqa: PLC0415 - see `unlocked`

    is_lost = trio.run(access.has_lost_heads, remote.url, access.Access.read(remote.token), remote.settings)
    if is_lost and not agreed:
        raise HeadsMissingError(LOST)
    return is_lost


def agree(root: LinkedRoot, secret: str) -> None:
    """Have a root that was just linked go on without the heads that the store has lost."""
    from syncer.remote.repository import access  # noqa: PLC0415 - see `unlocked`

    access.agree(root.head, access.Access.read(secret))


class KeptKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a linked root keeps.

    Attributes:
        access: The key, and what leads to the store.
        ca_file: Authorities that it was told to trust; None: the system's.
    """

    access: Access
    ca_file: str | None


def keys_kept_for(url: str, registry: Registry) -> list[KeptKey]:
    """What roots of this machine keep that are linked to a URL; what is gone or damaged is left out.

    Args:
        url: As `find_store` tells it.
        registry: Has the roots.
    """
    from syncer.remote.repository.access import Access  # noqa: PLC0415 - see above

    found: list[KeptKey] = []
    for root in registry.look().roots:
        if root.record.url == url:
            with contextlib.suppress(NotFoundError, CorruptionError, FormatTooNewError):
                found.append(KeptKey(access=Access.read(root.secret()), ca_file=root.record.ca_file))
    return found


def _parsed(url: str) -> StoreUrl:
    try:
        return parse_store_url(url)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _kept(known: LinkedRoot) -> Kept | None:
    from syncer.remote.repository.access import Access  # noqa: PLC0415 - see above

    try:
        return Access.read(known.secret()).kept
    except (NotFoundError, CorruptionError):
        return None  # a passphrase makes it anew
