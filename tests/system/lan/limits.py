"""What `upload_limit` and `download_limit` of config.toml say, the real program keeps to.

Time is looked at from one side alone: so many bytes by such a limit take so long at least, on any machine.
"""

from __future__ import annotations

import time

from tests.kit.program import end
from tests.system.lan.trial import MIB, Ground, has, pulled

FILE_BYTES = 8 * MIB
PER_S = 1_000_000
ASKED = 2 * MIB
"""What may be under way beyond the limit: as much is asked of a peer at once at most, and sent to one."""


def _least_s(count: int) -> float:
    """How long so many bytes take at the limit."""
    assert count >= FILE_BYTES // 2, "too few came by the limit to tell"
    return (count - ASKED) / PER_S


def what_is_fetched_keeps_to_its_limit(ground: Ground) -> None:
    """Breaks as a setting that is read and not heeded: blocks then come as fast as the network brings them."""
    one, two = ground.machines(2)
    two.settings(f'download_limit = "{PER_S // 1000}KB"')
    files = ground.seed(one, image=FILE_BYTES)
    summary = pulled(two, files)
    assert summary["seconds"] >= _least_s(summary["bytes_from_peers"])


def what_is_given_keeps_to_its_limit_for_all_together(ground: Ground) -> None:
    """Two ask at once; breaks, too, as a limit that each has for itself."""
    one, *others = ground.machines(3)
    one.settings(f'upload_limit = "{PER_S // 1000}KB"')
    files = ground.seed(one, image=FILE_BYTES)
    began = time.monotonic()
    asking = [each.begin("reconcile", each.root) for each in others]
    for process in asking:
        end(process)
    passed_s = time.monotonic() - began
    assert all(has(each, files) for each in others)
    given = one.json("peers")["figures"]["bytes_to_peers"]
    assert passed_s >= _least_s(given)
