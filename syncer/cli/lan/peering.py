"""Whether a root has to do with devices on the network, and who switched that off if not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from syncer.cli.registry.config import config_file, read_settings
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.errors import UsageError

VARIABLE: Final = "BLOCKSYNC_PEERS"
"""Environment variable; "off": what is started with it neither asks nor answers anybody on the network."""


def is_silent(environment: Mapping[str, str]) -> bool:
    """Whether this process is to send nothing, and to hear nobody.

    Raises:
        UsageError: The variable has a typing error.
    """
    value = environment.get(VARIABLE, "")
    if value not in {"", "on", "off"}:
        raise UsageError(f"{VARIABLE} is {value!r}; expected on or off")
    return value == "off"


def switched_off(root: LinkedRoot, registry: Registry, environment: Mapping[str, str]) -> str:
    """Where it is kept that a root has no peers, in words after "off: "; empty: it may have.

    A config.toml is read only where there is one.

    Raises:
        UsageError: config.toml can't be understood.
        NotAllowedError: It can't be read.
    """
    if registry.peers_off:
        return "by `blocksync peers off`"
    if root.peers_off:
        return "by `blocksync peers off` for this root"
    path = config_file(environment)
    if os.path.exists(path) and not read_settings(environment).peers.enabled:
        return f"by `enabled = false` in {path}"
    return ""
