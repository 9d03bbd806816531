"""The variables that lead to a store: what of them is kept with a link, so that a daemon without them finds it, too.

What came from variables is kept as it was; of a clouds.yaml only where it is, so a password that is changed there
counts at once. For SFTP nothing is kept: its keys are files, or an agent's. Pure, but for where relative paths are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from syncer.remote.stores.swift.credentials import find_clouds
from syncer.remote.stores.urls import parse_store_url

CLOUDS_FILE: Final = "OS_CLIENT_CONFIG_FILE"
_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {"swift": ("OS_", "ST_"), "s3": ("AWS_",)}
_FILES: Final = frozenset({"OS_CACERT", "AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"})


def kept_environment(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What of the environment to keep for a store.

    Args:
        url: Of the store.
        environ: The environment by which it was found.

    Raises:
        UsageError: A clouds.yaml can't be understood.
    """
    parsed = parse_store_url(url)
    if parsed.scheme == "swift":
        file = find_clouds(parsed.host, environ)
        if file is not None:
            return {CLOUDS_FILE: os.path.abspath(file)}
    own = _FAMILIES.get(parsed.scheme, ())
    found = {name: value for name, value in environ.items() if name.startswith(own) and value} if own else {}
    found.pop(CLOUDS_FILE, None)
    return {name: os.path.abspath(value) if name in _FILES else value for name, value in found.items()}


def environment_for(url: str, environ: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
    """The environment for a store that was found before: of its own variables only what was kept counts."""
    own = _FAMILIES.get(parse_store_url(url).scheme, ())
    rest = {name: value for name, value in environ.items() if not (own and name.startswith(own))}
    return {**rest, **kept}
