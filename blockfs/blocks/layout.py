"""Where a block directory's parts lie, and its format file.

```
blocks.toml      format, UUID, block size, map size, compression: written last by create, again by the first adoption
lock             every process that has the directory open holds a shared flock; a rebuild needs it exclusively
gc.lock          flock of the one collector
index/           LMDB; see index.py
segments/        NNNNNNNN.seg and NNNNNNNN.idx; see segment.py
epochs/          one file per epoch that somebody holds or held; see epochs.py
```
"""

from __future__ import annotations

import os
import tomllib
from typing import Final
from uuid import UUID

import msgspec

from blockfs.blocks.codec import Compression
from blockfs.blocks.segment import PAGE, is_adopted, segment_name, sidecar_name
from blockfs.errors import CorruptionError, FormatTooNewError, NotFoundError, UsageError
from blockfs.runtime.atomic import write_atomically

FORMAT: Final = 3  # 1 knew no compression, 2 no adopted segments
_FIRST_FORMAT: Final = 2  # of a new directory, until it adopts a segment: older programs can use it as long as that
MIN_BLOCK_SIZE: Final = 4 << 10  # below, ids cost a percent of the data
MAX_BLOCK_SIZE: Final = 4 << 20  # Pithos' block size; above, a changed page costs too much
DEFAULT_MAP_SIZE_BYTES: Final = 1 << 40  # address space, not disk: 256 TiB of 64 KiB blocks
REPAIR_ADVICE: Final = "run `blocksync fsck --repair` to rebuild it from the segments"


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed when a block directory is created.

    Attributes:
        uuid: Identity; also in every segment's header and in the index.
        block_size: Bytes of a full block, a power of two.
        map_size_bytes: Upper limit of the index file.
        compression: Of new blocks; format 1 has none.
        number: The format's own, in blocks.toml.
    """

    uuid: UUID
    block_size: int
    map_size_bytes: int
    compression: Compression
    number: int = _FIRST_FORMAT

    def encode(self) -> bytes:
        """The content of blocks.toml."""
        return (
            "# A blocksync block directory. Do not edit.\n"
            f'format = {self.number}\nuuid = "{self.uuid}"\n'
            f"block_size = {self.block_size}\nmap_size = {self.map_size_bytes}\n"
            f'compression = "{self.compression.value}"\n'
        ).encode()


class Layout:
    """Paths inside one block directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.format_file = os.path.join(path, "blocks.toml")
        self.lock = os.path.join(path, "lock")
        self.gc_lock = os.path.join(path, "gc.lock")
        self.index = os.path.join(path, "index")
        self.segments = os.path.join(path, "segments")
        self.epochs = os.path.join(path, "epochs")

    def segment(self, number: int) -> str:
        """Path of a segment."""
        return os.path.join(self.segments, segment_name(number))

    def sidecar(self, number: int) -> str:
        """Path of a segment's sidecar."""
        return os.path.join(self.segments, sidecar_name(number))

    def is_adopted(self, number: int) -> bool | None:
        """Whether a segment was adopted: so its sidecar says, or, damaged, its first records; None: nothing does."""
        try:
            with open(self.sidecar(number), "rb") as file:
                return is_adopted(file.read(PAGE))
        except FileNotFoundError:
            return None

    def segment_numbers(self) -> list[int]:
        """Numbers of the segments that have a segment or sidecar file, ascending."""
        stems = {os.path.splitext(name)[0] for name in os.listdir(self.segments) if name.endswith((".seg", ".idx"))}
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())

    def allow_adopted(self) -> None:
        """Raise the format, durably, before there is an adopted segment: who knows none refuses from now on."""
        current = self.read_format()
        if current.number < FORMAT:
            write_atomically(self.format_file, msgspec.structs.replace(current, number=FORMAT).encode())

    def read_format(self) -> Format:
        """Read blocks.toml.

        Raises:
            NotFoundError: There is no block directory here.
            FormatTooNewError: Made by a newer version.
            CorruptionError: The file makes no sense.
        """
        try:
            with open(self.format_file, "rb") as file:
                content = file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"{self.path}: no block directory here (no blocks.toml)") from None
        try:
            found = tomllib.loads(content.decode())
            number = int(found["format"])
            if number > FORMAT:
                raise FormatTooNewError(self.format_file, number, FORMAT)
            result = Format(
                uuid=UUID(found["uuid"]),
                block_size=int(found["block_size"]),
                map_size_bytes=int(found["map_size"]),
                compression=Compression.NONE if number == 1 else Compression(found["compression"]),
                number=number,
            )
            check_block_size(result.block_size)
        except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
            raise CorruptionError(
                f"{self.format_file} is damaged ({error}); restore its lines from a backup: format, "
                "uuid (it is in each segment's header), block_size, map_size and compression"
            ) from error
        return result


def check_block_size(block_size: int) -> None:
    """Accept a block size.

    Raises:
        UsageError: Not a power of two from 4 KiB to 4 MiB.
    """
    if not MIN_BLOCK_SIZE <= block_size <= MAX_BLOCK_SIZE or block_size & (block_size - 1):
        raise UsageError(f"block size {block_size} is not a power of two from 4 KiB to 4 MiB")
