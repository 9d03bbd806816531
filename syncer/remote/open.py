"""The door to remotes: what a URL begins with says which client talks to it. The one place that knows all of them.

pithos+http(s)://…                             a container of a Pithos server, or a folder of one
swift://…  s3://…  sftp://…  file://…          a repository on an object store
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from syncer.errors import UsageError
from syncer.ports.remote import Remote
from syncer.remote.http.retry import RetryPolicy
from syncer.remote.http.transport import HttpSettings
from syncer.remote.stores.urls import FORMS


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How to get at a share. Its text form shows no secret.

    Attributes:
        url: Where it is.
        secret: A Pithos server's token; of a repository `repository.access.Access` as text.
        settings: How to talk, and how fast at most.
        policy: Of each request; None: patient.
        draw: Random numbers, 0 to 1.
        memory: File in which a device of a repository remembers its head; None: it only looks.
        cache: Folder for what never changes of a repository on a store of other machines; None: nothing is kept.
        token_file: File in which the token of a store is kept that has such; None: nothing is kept.
    """

    url: str
    secret: str
    settings: HttpSettings = HttpSettings()
    policy: RetryPolicy | None = None
    draw: Callable[[], float] = random.random
    memory: str | None = None
    cache: str | None = None
    token_file: str | None = None

    def __repr__(self) -> str:
        return f"Way({self.url})"


def open_remote(way: Way) -> Remote:
    """A client. Nothing is sent yet.

    Raises:
        UsageError: No such URL, or no credentials for it.
        CorruptionError: What is kept of a repository is damaged.
    """
    opener = _OPENERS.get(way.url.partition("://")[0])
    if opener is None:
        raise UsageError(f"{way.url!r}: expected a URL that begins with one of {', '.join(_OPENERS)}")
    return opener(way)


def _pithos(way: Way) -> Remote:
    from syncer.remote.prefix import open_container  # noqa: PLC0415 - only what is linked is loaded

    return open_container(way.url, way.secret, settings=way.settings, policy=way.policy, draw=way.draw)


def _repository(way: Way) -> Remote:
    from syncer.remote.repository.access import Access, open_repository  # noqa: PLC0415 - likewise

    access = Access.read(way.secret)
    return open_repository(
        way.url,
        access,
        settings=way.settings,
        policy=way.policy,
        memory=way.memory,
        cache=way.cache,
        token_file=way.token_file,
    )


_Opener: TypeAlias = Callable[[Way], Remote]
_OPENERS: Final[Mapping[str, _Opener]] = {
    "pithos+http": _pithos,
    "pithos+https": _pithos,
    **dict.fromkeys(FORMS, _repository),
}
