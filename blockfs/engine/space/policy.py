"""How much of the host a volume may use, and for what: all shares in one table. Pure.

| of | for | kept or used |
| --- | --- | --- |
| the host | names, staged pages (`room`) | 32 MiB are kept from them (`EngineConfig`), at most 1/64; of a quota 1/8 |
| the host | blocks (`blocks.disk`) | 16 MiB are kept from them, at most 1/128; of a quota 1/16 |
| the host | the ballast (`ballast`) | 8 MiB are held, at most 1/128; of a quota 1/16 |
| what is free | staged pages (`content.filetable`) | 1/4 may be staged, but 256 MiB |
| the limit of staging | a file that has less than 1/64 of it staged | 1/8 of it may come on top |
| the host | garbage (`service.collector`), clean hot files (`hot.hotfiles`) | 1/20 is free, or they go |
| the host | hot files that are written (`durable.seal_queue`) | 1/20 is free, or they are sealed each 10 s |
"""

from __future__ import annotations

from typing import Final

from blockfs.runtime.space import Space

RESERVE_SHARE: Final = 64  # of a small host, the reserve is never more than this part;
RESERVE_QUOTA_SHARE: Final = 8  # of a small quota: btrfs takes some 100 KiB for each change, until that is committed

BALLAST_BYTES: Final = 8 << 20
"""2,048 database pages: a collection's transactions change 512 rows each, a commit has about a second's changes."""

BALLAST_SHARE: Final = 128  # of a small host, the ballast is never more than this part;
BALLAST_QUOTA_SHARE: Final = 16  # of a small quota
BALLAST_SPARE: Final = 1  # taken back only if this many times its size stays free: it must not fill the host itself

STAGED_FREE_SHARE: Final = 4  # of the host's free bytes may be staged
STAGED_MIN_BYTES: Final = 256 << 20
STAGED_LITTLE_SHARE: Final = 64  # of the limit: a file that has no more staged than this may go
STAGED_SPARE_SHARE: Final = 8  # this part of the limit beyond it

LOW_SHARE: Final = 20
"""A host with less than this part free is nearly full: what can be had again by some work goes."""


def is_low(host: Space) -> bool:
    """Whether a host is nearly full."""
    return host.available_bytes * LOW_SHARE < host.total_bytes
