"""The comma-separated options of mount(8), fstab(5) and `blocksync mount -o`. Pure.

An option that we do not know is refused: ignoring, say, a misspelt `ro` would mount for writing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from blockfs.errors import UsageError
from blockfs.mount.choice import Choice

OURS: Final = {
    "ro": "read-only: nothing of the volume is changed",
    "rw": "for writing; the default",
    "allow_other": "other users may come in, as far as permissions allow",
    "allow_suid": "set-id bits of files count; root's to ask for",
    "allow_dev": "devices can be opened; root's to ask for",
    "debug": "log everything",
    "default_permissions": "the kernel checks permissions; it always does",
    "native": "the kernel reads and writes files of the host itself, where it can; the default but on btrfs",
    "no-native": "all goes through the mount process; as `--no-native`",
    **{f"frontend={choice}": "what talks to the kernel; as `--frontend`" for choice in Choice},
}
"""Options with a meaning of our own, each with what it does."""

KERNEL: Final = {
    "nosuid": "suid",
    "suid": "nosuid",
    "nodev": "dev",
    "dev": "nodev",
    "noexec": "exec",
    "exec": "noexec",
    "sync": "async",
    "async": "sync",
    "dirsync": "",
    "noatime": "",
}
"""Options that the kernel enforces, each with its opposite: of the two, the last one counts. Without any of them a
mount is nosuid and nodev, exec and async."""

_EITHER: Final = {"ro": "rw", "rw": "ro", "native": "no-native", "no-native": "native"}
"""Options of ours with their opposites: of the two, the last one counts."""

_FRONTEND: Final = "frontend="
_MEANT: Final = {"allow_suid": "suid", "allow_dev": "dev"}
"""Names of ours for options of the kernel that mount(8) takes for defaults: it drops them before a helper sees them."""

OF_MOUNT: Final = frozenset(
    {
        *("defaults", "auto", "noauto", "user", "nouser", "users", "nousers", "owner", "noowner", "group", "nogroup"),
        *("nofail", "_netdev", "silent", "loud"),
        # About access times of directories, or what is done anyway.
        *("diratime", "nodiratime", "relatime", "atime", "nostrictatime", "nolazytime"),
    }
)
"""Options that mount(8) and systemd handle themselves, or that change nothing here: accepted."""

OF_MOUNT_PREFIXES: Final = ("x-", "X-", "user=", "comment=", "uhelper=", "helper=")

_ADVICE: Final = {
    "remount": "the kernel alone changes a mount that is there (`mount -i -o remount,ro`); else mount it again",
    "allow_root": "use allow_other, and permissions",
    "strictatime": "access times are not kept that exactly",
    "lazytime": "access times are not kept that exactly",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of options asks for.

    Attributes:
        frontend: What talks to the kernel.
        native: Whether the kernel shall read and write files of the host itself; None: not told.
        kernel: Members of `KERNEL`.
    """

    read_only: bool = False
    allow_other: bool = False
    debug: bool = False
    frontend: Choice = Choice.AUTO
    native: bool | None = None
    kernel: frozenset[str] = frozenset()


def parse(text: str, *, sloppy: bool = False) -> Options:
    """Read a list of options.

    Args:
        text: Comma-separated; empty ones don't count.
        sloppy: Ignore unknown ones, as `mount -s` asks for.

    Raises:
        UsageError: An option that we don't know.
    """
    chosen: set[str] = set()
    for told in filter(None, text.split(",")):
        option = _MEANT.get(told, told)
        if option in KERNEL:
            chosen.discard(KERNEL[option])
            chosen.add(option)
        elif option in _EITHER:
            chosen.discard(_EITHER[option])
            chosen.add(option)
        elif option in OURS:
            if option.startswith(_FRONTEND):
                chosen -= {each for each in chosen if each.startswith(_FRONTEND)}
            chosen.add(option)
        elif not (sloppy or option in OF_MOUNT or option.startswith(OF_MOUNT_PREFIXES)):
            raise UsageError(f"mount option {option!r}: {_ADVICE.get(option, 'no such option; see blocksync(1)')}")
    return Options(
        read_only="ro" in chosen,
        allow_other="allow_other" in chosen,
        debug="debug" in chosen,
        frontend=Choice(next((each.removeprefix(_FRONTEND) for each in chosen if each.startswith(_FRONTEND)), "auto")),
        native=True if "native" in chosen else False if "no-native" in chosen else None,
        kernel=frozenset(chosen & KERNEL.keys()),
    )
