"""What a remote is called on the command line: a URL with a token beside it, or a cloud of kamaki's configuration."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import trio
from msgspec.structs import replace

from blockfs.runtime.failures import said
from blockfs.runtime.output import note
from syncer.cli.registry.repositories import find_store
from syncer.cli.session.opening import read_token
from syncer.errors import NotFoundError, UsageError
from syncer.remote.http.transport import HttpSettings
from syncer.remote.kamaki.discovery import Storage, find_storage
from syncer.remote.kamaki.kamakirc import Clouds, parse_clouds
from syncer.remote.stores.urls import FORMS, is_store_url
from syncer.remote.url import parse_url, prefix_problem

CONFIG_VARIABLE: Final = "KAMAKI_CONFIG"
SCHEME: Final = "kamaki://"

_FORM: Final = f"expected {SCHEME}CLOUD/CONTAINER[/FOLDER], {SCHEME}CLOUD, or --cloud CLOUD with CONTAINER[/FOLDER]"


def find_remote(
    url: str | None,
    cloud: str | None,
    token_file: str | None,
    environment: Mapping[str, str],
    ca_file: str | None = None,
) -> Storage:
    """What a user means.

    Args:
        url: `pithos+http(s)://…`, `kamaki://CLOUD[/CONTAINER]`, with `cloud` also `[/]CONTAINER`; None with `cloud`:
            the container of its configuration. Or that of an object store: then without what opens the repository.
        cloud: Name of a cloud.
        token_file: For the first kind of URL.
        environment: HOME, KAMAKI_CONFIG, BLOCKSYNC_TOKEN.
        ca_file: Authorities to trust instead of the system's, for the first kind of URL; None: the system's.

    Raises:
        UsageError: None of these, or a configuration that makes no sense.
        NotFoundError: No such configuration or token file.
        SyncerError: The cloud does not answer, or does not know the token.
    """
    if cloud is None and is_store_url(url or ""):
        if token_file is not None:
            raise UsageError(f"--token-file is for pithos+http(s):// URLs, not for {str(url).partition('://')[0]}://")
        return find_store(str(url), ca_file)
    if cloud is None and not (url or "").startswith(SCHEME):
        if url is None:
            raise UsageError(
                "no URL: give pithos+http(s)://…/ACCOUNT/CONTAINER, kamaki://CLOUD/CONTAINER, --cloud CLOUD, or one of "
                f"{', '.join(FORMS.values())}"
            )
        try:
            plain = parse_url(url)
        except ValueError as error:
            raise UsageError(str(error)) from None
        settings = HttpSettings(ca_file=_authorities(str(plain), ca_file))
        return Storage(url=str(plain), token=read_token(token_file, environment, plain.account), settings=settings)
    if token_file is not None:
        raise UsageError("--token-file is for URLs; the token of a cloud is in its configuration")
    if ca_file is not None:
        raise UsageError("--ca-file is for URLs; the authorities of a cloud are in its configuration (ca_certs)")
    name, container, prefix = _cloud_and_container(url, cloud)
    found = read_clouds(environment).find(name)
    if found.ca_certs is not None:  # kept in the root's record, wherever later commands run
        found = replace(found, ca_certs=os.path.abspath(os.path.expanduser(found.ca_certs)))
    if found.ignore_ssl:
        note(f"warning: {found.source}: ignore_ssl is on: whoever is in between can read the token and the data")
    storage = trio.run(find_storage, found, container or found.container)
    return replace(storage, url=str(replace(parse_url(storage.url), prefix=prefix))) if prefix else storage


def _authorities(url: str, ca_file: str | None) -> str | None:
    """The file of authorities as a root's record keeps it: wherever later commands run."""
    if ca_file is None:
        return None
    if parse_url(url).scheme != "https":
        raise UsageError(f"--ca-file is for pithos+https URLs; {url} has no TLS")
    return os.path.abspath(os.path.expanduser(ca_file))


def read_clouds(environment: Mapping[str, str]) -> Clouds:
    """The configuration of $KAMAKI_CONFIG, else of ~/.kamakirc.

    Raises:
        NotFoundError: There is none.
        UsageError: It can't be read, or makes no sense.
    """
    path = environment.get(CONFIG_VARIABLE) or os.path.join(
        environment.get("HOME", os.path.expanduser("~")), ".kamakirc"
    )
    try:
        with open(path, encoding="utf-8") as file:
            text, mode = file.read(), os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        raise NotFoundError(
            f"{path} does not exist: kamaki's configuration; ${CONFIG_VARIABLE} names another"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be read: {said(error)}") from None
    clouds = parse_clouds(text, path)
    if clouds.names and mode & (stat.S_IRGRP | stat.S_IROTH):
        note(f"warning: {path} holds tokens, and others can read it; chmod 600 {path}")
    return clouds


def _cloud_and_container(url: str | None, cloud: str | None) -> tuple[str | None, str | None, str]:
    """Cloud (None: the default one), container (None: the configured one) and folder in it ("": all of it)."""
    if url is None:
        return cloud, None, ""
    if "://" in url:
        if not url.startswith(SCHEME) or cloud is not None:
            raise UsageError(f"--cloud does not go with {url.partition('://')[0]}://: {_FORM}")
        cloud, _, url = url.removeprefix(SCHEME).partition("/")
    container, _, prefix = url.strip("/").partition("/")
    try:
        prefix = unquote(prefix, errors="strict")
        found = cloud or None, unquote(container, errors="strict") or None, prefix
    except UnicodeDecodeError:
        raise UsageError(f"{url!r} is not percent-encoded UTF-8: {_FORM}") from None
    problem = prefix_problem(prefix)
    if problem is not None:
        raise UsageError(f"{url!r}: the folder {prefix!r} can't be a root: {problem}: {_FORM}")
    return found
