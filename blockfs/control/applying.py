"""Messages of the control socket that change names and contents, each under a condition. Pure."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from blockfs.control.message import MAX_XATTR_BYTES, Ino, Message, Mode, Name, Size, Target, TimeNs, UserId, Version
from blockfs.xattrs import Carried

MOST_MADE_IDS: Final = 256
"""Blocks of one new file in `MakeFiles`."""

MOST_MADE: Final = 1024
"""Files in one `MakeFiles`."""


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """What a conditional change expects to find under a name.

    Attributes:
        ino: The inode, or None: the name must be free.
        content_version: Its content version, or None: any content.
    """

    ino: Ino | None
    content_version: Version | None = None


class Change(Message, frozen=True, kw_only=True):
    """A conditional change.

    Attributes:
        commit: Durable when it is answered. False: only after the next `Commit`; many changes then share one.
    """

    commit: bool = True


class InstallFile(Change, frozen=True, kw_only=True):
    """Put a prepared file under a name if the name holds what `expect` says.

    Attributes:
        trash_parent: Inode of the directory that receives the displaced file, with trash_name. None only if the slot
            is empty.
    """

    handle: int
    parent: Ino
    name: Name
    expect: Expect
    trash_parent: Ino | None = None
    trash_name: Name | None = None


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A new file of at most 256 blocks that is to be made under a free name.

    Attributes:
        ids: Concatenated ids of all its blocks, holes included.
    """

    parent: Ino
    name: Name
    size_bytes: Size
    mode: Mode
    uid: UserId
    gid: UserId
    mtime_ns: TimeNs
    ids: Annotated[bytes, msgspec.Meta(max_length=32 * MOST_MADE_IDS)]


class MakeFiles(Change, frozen=True, kw_only=True):
    """Make new files whose blocks are stored. Only where `Welcome.takes` has "makefiles".

    The blocks must be durable in the block directory, and pinned or held by the caller.
    """

    files: Annotated[list[NewFile], msgspec.Meta(min_length=1, max_length=MOST_MADE)]


class ApplyMkdir(Change, frozen=True, kw_only=True):
    """Make a directory under a free name."""

    parent: Ino
    name: Name
    mode: Mode
    uid: UserId
    gid: UserId


class ApplySymlink(Change, frozen=True, kw_only=True):
    """Make a symlink under a free name."""

    parent: Ino
    name: Name
    target: Target
    uid: UserId
    gid: UserId


class ApplyMove(Change, frozen=True, kw_only=True):
    """Rename (parent, name) to a free (new_parent, new_name) if the old name holds what `expect` says."""

    parent: Ino
    name: Name
    new_parent: Ino
    new_name: Name
    expect: Expect


class ApplyRemove(Change, frozen=True, kw_only=True):
    """Take a name away if it holds what `expect` says.

    Attributes:
        trash_parent: Directory that receives the node, under trash_name; None: a directory is removed (it must be
            empty), any other node is unlinked.
    """

    parent: Ino
    name: Name
    expect: Expect
    trash_parent: Ino | None = None
    trash_name: Name | None = None


class ApplySetMeta(Change, frozen=True, kw_only=True):
    """Set metadata of an inode whose content is still the expected one. None leaves a field alone.

    Attributes:
        keep_special: Its setuid, setgid and sticky bits stay, whatever `mode` says of them.
        xattrs: What its attributes of users are to be, without those that `xattr_bytes` has no room for.
        xattr_bytes: As in `Changes`: what that listing left out stays as it is.
        seen_xattrs: What its attributes were when that was decided: what somebody did since stays.
    """

    expect: Expect
    mode: Mode | None = None
    keep_special: bool = False
    mtime_ns: TimeNs | None = None
    xattrs: Carried | None = None
    xattr_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_XATTR_BYTES)] = MAX_XATTR_BYTES
    seen_xattrs: Carried | None = None
