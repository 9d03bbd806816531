"""What `doctor` concludes from what it sees. Pure."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

import msgspec

from blockfs.runtime.units import counted, format_size

_SKEW_WARN_S: Final = 5.0  # conflict copies and retention go by these clocks; nothing else does
_SKEW_FAIL_S: Final = 24 * 3600.0  # TLS certificates and tokens end at times
_SPACE_FAIL_BYTES: Final = 64 << 20  # less, and a StateDB of a large root can't commit
_SPACE_WARN_BYTES: Final = 1 << 30
_SPACE_WARN_SHARE: Final = 0.05
_WATCH_SHARE: Final = 0.8
_KERNEL: Final = (4, 11)  # statx; renameat2 with both flags is older
_OWN_FRONTEND: Final = (5, 4)  # `blocksync mount --frontend kernel`: docs/design/kernel-frontend.md

EXCHANGING: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "bcachefs", "ubifs", "fuse.blocksync", "overlay", "jfs"}
)
"""Filesystems that swap two names atomically, by their names in mountinfo. `link` tries it out."""


class Level(Enum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        subject: What was looked at.
        level: How it is.
        text: What was found.
        remedy: What to do; empty if nothing need be done.
        damaged: Something that is stored is not what it should be: exit code 15, not 3.
    """

    subject: str
    level: Level
    text: str
    remedy: str = ""
    damaged: bool = False


def failed(subject: str, text: str, remedy: str) -> Check:
    """Something that does not work."""
    return Check(subject=subject, level=Level.FAIL, text=text, remedy=remedy)


def kernel(release: str) -> Check:
    """Linux's release."""
    if _numbers(release) >= _KERNEL:
        return Check(subject="kernel", level=Level.OK, text=release)
    return Check(subject="kernel", level=Level.FAIL, text=f"{release} is too old",
                 remedy="use Linux 4.11 or later; 5.10 is what is tested")  # fmt: skip


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in release.split(".")[:2])


def fuse(*, device: bool, library: bool, helper: bool, root: bool, release: str) -> Check:
    """What mounting a volume needs; a host that only syncs folders does without.

    Args:
        device: /dev/fuse can be opened.
        library: pyfuse3 is there; only a kernel before `_OWN_FRONTEND` needs it.
        helper: fusermount3 is there.
        root: Who asks is root, and needs none.
        release: Linux's.
    """
    lacking = []
    own = _numbers(release) >= _OWN_FRONTEND
    if not device:
        lacking.append("/dev/fuse can't be opened (modprobe fuse; in a container: pass the device)")
    if not library and not own:
        lacking.append("pyfuse3 is not installed (`make install EXTRAS=fuse`), which a kernel before 5.4 needs")
    if not helper and not root:
        lacking.append("fusermount3 is not in PATH (Debian: fuse3)")
    if not lacking:
        text = f"volumes can be mounted, by the front-end {'kernel' if own else 'pyfuse3'}"
        return Check(subject="FUSE", level=Level.OK, text=text)
    return Check(subject="FUSE", level=Level.WARN, text="volumes can't be mounted; folders can be synced",
                 remedy="; ".join(lacking))  # fmt: skip


def skew(date: str | None, sent_s: float, received_s: float) -> Check:
    """The server's clock against ours, by its Date: whole seconds, taken at some time between request and reply."""
    if date is None:
        return Check(subject="clock", level=Level.OK, text="the server does not tell the time")
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return Check(subject="clock", level=Level.WARN, text=f"the server's Date is no date: {date[:60]!r}",
                     remedy="something between here and the server answers instead of it")  # fmt: skip
    return skew_of(theirs, sent_s, received_s)


def skew_of(theirs: float, sent_s: float, received_s: float) -> Check:
    """The other side's clock against ours: its time in whole seconds, taken between request and reply."""
    # It may be anything from `theirs` to a second later, at any time from sending to receiving.
    off_s = max(0.0, theirs - received_s, sent_s - (theirs + 1.0))
    if off_s < _SKEW_WARN_S:
        return Check(subject="clock", level=Level.OK, text="agrees with the server's")
    ahead = "behind" if theirs > received_s else "ahead of"
    level = Level.FAIL if off_s >= _SKEW_FAIL_S else Level.WARN
    text = f"{off_s:.0f} s {ahead} the server's; nothing is lost by that, but times in names and in the trash are wrong"
    return Check(subject="clock", level=level, text=text, remedy="let both take their time from NTP (timedatectl)")


def space(subject: str, free_bytes: int, total_bytes: int) -> Check:
    """Free space of a filesystem."""
    text = f"{format_size(free_bytes)} of {format_size(total_bytes)} free"
    remedy = "free some: `blocksync trash empty`, `blocksync gc` on volumes, or move the root"
    if free_bytes < _SPACE_FAIL_BYTES:
        return Check(subject=subject, level=Level.FAIL, text=text, remedy=remedy)
    if free_bytes < min(_SPACE_WARN_BYTES, total_bytes * _SPACE_WARN_SHARE):
        return Check(subject=subject, level=Level.WARN, text=text, remedy=remedy)
    return Check(subject=subject, level=Level.OK, text=text)


def watches(limit: int | None, directories: int) -> Check:
    """The kernel's limit of inotify watches, one for each directory of the ordinary roots."""
    subject = "inotify watches"
    if limit is None:
        return Check(subject=subject, level=Level.WARN, text="the kernel tells no limit",
                     remedy="without inotify changes are found by scans only")  # fmt: skip
    text = f"{counted(directories, 'directory', 'directories')} to watch, "
    text += f"{counted(limit, 'watch', 'watches')} allowed per user"
    if directories <= limit * _WATCH_SHARE:
        return Check(subject=subject, level=Level.OK, text=text)
    level = Level.FAIL if directories > limit else Level.WARN
    wanted = 1 << max(17, (2 * directories).bit_length())
    remedy = f"sysctl fs.inotify.max_user_watches={wanted} (and a line in /etc/sysctl.d); else changes wait for a scan"
    return Check(subject=subject, level=level, text=text, remedy=remedy)


def exchange(filesystem: str) -> Check:
    """Whether the root's filesystem swaps names atomically."""
    if filesystem in EXCHANGING:
        return Check(subject="filesystem", level=Level.OK, text=f"{filesystem} swaps names atomically")
    return Check(subject="filesystem", level=Level.WARN, text=f"{filesystem} is not known to swap names atomically",
                 remedy="`blocksync link` tries it and refuses if not; ext4, XFS, btrfs and volumes do")  # fmt: skip


def worst(checks: list[Check]) -> Level:
    """The worst level of all."""
    levels = {check.level for check in checks}
    return next((level for level in (Level.FAIL, Level.WARN) if level in levels), Level.OK)
