"""The door to object stores: a URL, and the environment with the credentials."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from syncer.errors import UsageError
from syncer.remote.http.rate_limit import RateLimit
from syncer.remote.http.retry import Retry, RetryPolicy
from syncer.remote.http.transport import HttpSettings
from syncer.remote.stores.directory import DirectoryStore
from syncer.remote.stores.limited import LimitedStore
from syncer.remote.stores.opendal import s3_store
from syncer.remote.stores.pacing import LOCAL, REMOTE, paced
from syncer.remote.stores.port import BlobStore
from syncer.remote.stores.retrying import RetryingStore
from syncer.remote.stores.sftp import sftp_store
from syncer.remote.stores.swift.credentials import find_credentials
from syncer.remote.stores.swift.store import SwiftStore
from syncer.remote.stores.swift.tokens import kept_at
from syncer.remote.stores.urls import StoreUrl, parse_store_url


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to use a store.

    Attributes:
        http: How to talk, where it is HTTP. A cloud's own authorities come before its. Its limits are not used.
        patience: Of each call.
        limit_up: Bytes of objects per second; None: no limit.
        limit_down: The same of what is read.
        poll_s: Longest pause between two looks of `wait`; None: the store's own pace.
        token_file: Where the token of a Swift is kept, beside the credentials or where they are no less readable; None:
            nowhere.
    """

    http: HttpSettings = HttpSettings()
    patience: RetryPolicy = RetryPolicy()
    limit_up: int | None = None
    limit_down: int | None = None
    poll_s: float | None = None
    token_file: str | None = None


def make_store(url: str, settings: StoreSettings | None = None, environ: Mapping[str, str] | None = None) -> BlobStore:
    """A store that tries again and keeps to its limits; `open` is the caller's first call. Nothing is sent yet.

    Args:
        url: See `urls`.
        settings: How to use it.
        environ: Instead of the process's environment.

    Raises:
        UsageError: No such URL, no credentials for it, or a library is missing: says what is expected.
    """
    settings = StoreSettings() if settings is None else settings
    try:
        parsed = parse_store_url(url)
    except ValueError as error:
        raise UsageError(str(error)) from None
    made = _bare(parsed, settings, os.environ if environ is None else environ)
    retry = Retry(policy=settings.patience, draw=random.random, host=str(parsed))
    limits = [None if rate is None else RateLimit(rate) for rate in (settings.limit_up, settings.limit_down)]
    patient = RetryingStore(made, retry)
    # The limit is outside: waiting for one's turn does not cost patience. What is sent again is not counted.
    return LimitedStore(patient, *limits) if any(limits) else patient


def _bare(url: StoreUrl, settings: StoreSettings, environ: Mapping[str, str]) -> BlobStore:
    if url.scheme == "file":
        return DirectoryStore(os.fsencode(url.path), paced(LOCAL, settings.poll_s))
    pace = paced(REMOTE, settings.poll_s)
    if url.scheme == "swift":
        found = find_credentials(url.host, environ)
        http = replace(
            settings.http,
            limit_up=None,
            limit_down=None,
            ca_file=settings.http.ca_file or found.ca_file,  # an option says more than the surroundings
            ignore_certificates=found.ignore_certificates or settings.http.ignore_certificates,
        )
        return SwiftStore(
            kept_at(found.sign_in, settings.token_file), url.container, url.prefix, settings=http, pace=pace
        )
    if url.scheme == "s3":
        return s3_store(url.container, url.path, environ, pace)
    return sftp_store(url.host, url.port, url.user, url.path, pace)
