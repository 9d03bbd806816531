"""What a user has set for this machine: `$XDG_CONFIG_HOME/blocksync/config.toml`. No file: all as it is by default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from syncer.cli.registry.roots import xdg_folder
from syncer.errors import NotAllowedError, UsageError

if TYPE_CHECKING:
    from syncer.cli.registry.settings import Settings

MAX_BYTES: Final = 1 << 20


def config_file(environment: Mapping[str, str]) -> str:
    """Where it is, or would be."""
    home = environment.get("HOME", os.path.expanduser("~"))
    return os.path.join(
        xdg_folder(environment, "XDG_CONFIG_HOME", os.path.join(home, ".config")), "blocksync", "config.toml"
    )


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read it.

    Raises:
        UsageError: It can't be understood; names the file and the key.
        NotAllowedError: It can't be read.
    """
    from syncer.cli.registry.settings import Settings, parse  # noqa: PLC0415 - with it comes the cipher of the frames

    path = config_file(environment)
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise NotAllowedError(path, error.strerror or str(error)) from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path} is longer than {MAX_BYTES} bytes: that is no configuration")
    try:
        return parse(content.decode(), path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}; write it as UTF-8") from None
