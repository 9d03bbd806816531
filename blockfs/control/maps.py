"""Messages of the control socket about what files share. Pure."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from blockfs.control.message import Message, Size

MAX_CELLS: Final = 1 << 16
MAX_SHARERS: Final = 1024


class BlockMapOf(Message, frozen=True, kw_only=True):
    """The map of a file: of the last commit, and of what is staged now. Only to servers whose `takes` has "blockmapof".

    Attributes:
        path: Relative to the mount's root; also in `.snapshots`.
        cells: In how many pieces at most.
        first: The block with which the part begins that is asked for. It is made to begin and end with a leaf (256
            blocks). A server of a release before parts tells of the whole file, and 0 for `file_blocks`.
        count: Blocks of it; 0: all that follow.

    Errors: 10 (no such file), 2 (it is no regular file).
    """

    path: bytes
    cells: Annotated[int, msgspec.Meta(ge=1, le=MAX_CELLS)]
    first: Size = 0
    count: Size = 0


class CellMsg(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A piece of a map, in numbers of blocks; see `blockfs.service.maps.blockmap.Cell`."""

    holes: int
    staged: int
    own: int
    shared: int
    other: int


class OtherMsg(msgspec.Struct, frozen=True, kw_only=True):
    """A file that shares blocks with another one: its path, and how many."""

    path: bytes
    blocks: int


class BlockMapReply(Message, frozen=True, kw_only=True):
    """The map of a file.

    Attributes:
        path: As asked for.
        block_size: Bytes.
        size_bytes: Of the file, as it is now.
        blocks: Of the file, or of the part of it.
        cells: Its pieces, in order; as many as were asked for, or one for each block.
        others: Files that share blocks with it, the one with most first. Those of snapshots don't count.
        is_whole: Each block was looked at; else own and shared are estimated, from ids that are chosen by chance.
        is_behind: The kernel writes to it, and the host does not tell where: what has changed since it was sealed last
            is not told apart.
        first: The first block of the part.
        file_blocks: Of the whole file.
    """

    path: bytes
    block_size: int
    size_bytes: int
    blocks: int
    cells: list[CellMsg]
    others: list[OtherMsg]
    is_whole: bool
    is_behind: bool
    first: int = 0
    file_blocks: int = 0


class SharingOf(Message, frozen=True, kw_only=True):
    """Which files share most. Only to servers whose `takes` has "sharingof".

    Attributes:
        most: How many files are named.
    """

    most: Annotated[int, msgspec.Meta(ge=0, le=MAX_SHARERS)]


class SharerMsg(msgspec.Struct, frozen=True, kw_only=True):
    """A file that shares blocks.

    Attributes:
        path: The file.
        size_bytes: Its size.
        blocks: Its distinct blocks.
        shared: Those of them that another file has, too.
        other: The file with which it shares most of them.
    """

    path: bytes
    size_bytes: int
    blocks: int
    shared: int
    other: bytes


class SharingReply(Message, frozen=True, kw_only=True):
    """What the files of a volume come to, and which of them share most.

    Attributes:
        block_size: Bytes.
        files: Regular files, hard links once; as the figures below without those of snapshots, unless they say so.
        logical_bytes: Sum of their sizes.
        filled_bytes: Bytes of their blocks that are no holes, and of those of snapshots.
        unique_bytes: Canonical bytes of the distinct blocks, of snapshots, too.
        stored_bytes: Allocated bytes of the volume on its host, without staging.
        staged_bytes: Written, not yet sealed.
        sharers: Files that share most, the first most.
        is_whole: Each block was looked at; else blocks, shared and unique bytes are estimates.
    """

    block_size: int
    files: int
    logical_bytes: int
    filled_bytes: int
    unique_bytes: int
    stored_bytes: int
    staged_bytes: int
    sharers: list[SharerMsg]
    is_whole: bool
