"""What users do while blocks are on their way: start together, switch off, pause, rotate, reconcile beside a daemon."""

from __future__ import annotations

from tests.kit.program import SHARE_BLOCK
from tests.system.lan.trial import MIB, Ground, has


def the_first_pull_of_a_daemon(ground: Ground) -> None:
    """A device that has just been linked has no key yet: the cycle reads it first, and then asks its neighbours."""
    one, two = ground.machines(2)
    files = ground.seed(one, image=4 * MIB)
    two.watch()
    two.until("status", lambda _: has(two, files))
    told = two.until("peers", lambda told: told["figures"])
    assert told["figures"]["blocks_from_peers"] > 2 * MIB // SHARE_BLOCK
