"""Reading objects: versions, their block lists and their bytes, on snapshots. Thread-safe, synchronous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.extents import block_count, spans
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, BlockId
from blockfs.errors import BlockfsError
from syncer.protocol import segments, swift
from syncer.protocol.extensions.hashmap_delta import Splice
from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.listing import MAX_ROWS, VersionRow
from syncer.protocol.segments import Segment
from syncer.server.catalogue import containers, contents, listings, objects
from syncer.server.catalogue.catalogue import Catalogue, Reading
from syncer.server.catalogue.conditions import Verdict, judge_read
from syncer.server.catalogue.orders import Place, ReadOrder, Selection
from syncer.server.catalogue.schema import VersionRecord, uuid_text
from syncer.server.errors import Conflict, NotFound, NotModified, PreconditionFailed, Refusal
from syncer.server.store import deltas

_READ_STEP_BYTES: Final = 1 << 20  # of content in one thread call: a call costs some 50 µs


class ObjectView(msgspec.Struct, frozen=True, kw_only=True):
    """One version, open for reading. Its block list is immutable.

    Attributes:
        state: What replies tell; of a joined object, its size is that of all segments together.
        record: Its row. Leaves are looked up when they are read: a HEAD needs none, and a manifest may name thousands.
        segments: Of a joined object: what its content is made of, in order.
        joined_md5: Of a joined object: what its ETag tells, the MD5 of its segments' MD5s.
    """

    state: ObjectState
    record: VersionRecord
    segments: tuple[ObjectView, ...] = ()
    joined_md5: bytes | None = None


class ObjectReader:
    """What a store does without writing.

    Attributes:
        block_size: Bytes.
    """

    def __init__(self, catalogue: Catalogue, blocks: BlockDirectory) -> None:
        self._catalogue = catalogue
        self._blocks = blocks
        self.block_size: Final = blocks.block_size

    def open_object(self, order: ReadOrder) -> ObjectView:
        """A version of an object.

        Raises:
            NotFound: No such container, object or version, or its segments' container is gone.
            Forbidden: It is not shared with the reader.
            PreconditionFailed: A condition doesn't hold.
            NotModified: The client has it already.
            Conflict: It is made of too many segments.
        """
        with self._catalogue.reading() as view:
            if order.reader:  # he was let in before; what is here now may be a content that he must not see
                objects.require_readable(view, order.reader, order.place, order.version)
            serial, record = objects.read_version(view, order.place, order.version)
            state, conditions = objects.state_of(serial, record), order.conditions
            joins = order.joins and bool(record.manifest)
            if joins:  # its time says nothing of its segments
                conditions = replace(conditions, if_modified_since=None)
            opened = _view(serial, record)
            if joins:
                static = segments.read_mark(record.manifest) if order.tells else None
                opened = self._joined(view, order.place.account, opened) if static is None else _told(opened, *static)
                state = replace(state, md5=opened.joined_md5)
            verdict = judge_read(conditions, state)
            if verdict is Verdict.FAILED:
                raise PreconditionFailed(f"Precondition failed: it is at version {serial}")
            if verdict is Verdict.NOT_MODIFIED:
                tag = conditions.told_tag(state)
                raise NotModified(f'"{tag}"' if joins else tag)
            return opened

    def leaf_keys(self, opened: ObjectView) -> bytes:
        """Concatenated keys of an object's leaves."""
        with self._catalogue.reading() as view:
            return contents.leaf_keys(view, opened.record, self.block_size)

    def _joined(self, view: Reading, account: str, opened: ObjectView) -> ObjectView:
        """An object with its segments.

        Raises:
            NotFound: Their container is gone. An empty content would look whole.
            Conflict: They are too many, or not what is listed.
        """
        listed = self._listed(view, opened.record)
        if listed is not None:
            return _whole(opened, tuple(_segment(view, account, segment) for segment in listed))
        container, _, prefix = opened.record.manifest.partition("/")
        _, record = containers.existing(view, account, container)
        rows = listings.names(view, record, Selection(prefix=prefix, limit=MAX_ROWS + 1))
        if len(rows) > MAX_ROWS:  # a content without the rest would look whole
            raise Conflict(f"More than {MAX_ROWS} objects have names that begin with {opened.record.manifest[:200]!r}")
        return _whole(opened, tuple(_part(row.newest, view.existing_version(row.newest)) for row in rows))

    def listed_segments(self, order: ReadOrder) -> list[Segment] | None:
        """What the manifest of a static large object lists; None: it is no such object.

        Raises:
            Refusal: As `open_object`.
        """
        opened = self.open_object(order)
        with self._catalogue.reading() as view:
            return self._listed(view, opened.record)

    def _listed(self, view: Reading, record: VersionRecord) -> list[Segment] | None:
        if segments.read_mark(record.manifest) is None or record.size_bytes > segments.MAX_STORED_BYTES:
            return None
        ids = b"".join(contents.read_leaves(view, contents.leaf_keys(view, record, self.block_size)))
        body = b"".join(
            self._blocks.read(BlockId(ids[span.index * ID_SIZE : (span.index + 1) * ID_SIZE]), span.start, span.length)
            for span in spans(0, record.size_bytes, self.block_size)
        )
        return segments.decode(body)

    def history(self, place: Place, most: int | None = None) -> list[VersionRow]:
        """Versions of a name, ascending: the last so many, or all."""
        with self._catalogue.reading() as view:
            return objects.history(view, place, most)

    def ids(self, opened: ObjectView, first: int, count: int) -> bytes:
        """Some of an object's block ids, concatenated.

        Args:
            opened: The object.
            first: Index of the first.
            count: How many, within the object.
        """
        first_leaf, skip = divmod(first, LEAF_IDS)
        last_leaf = -(-(first + count) // LEAF_IDS)
        with self._catalogue.reading() as view:
            keys = contents.leaf_keys(view, opened.record, self.block_size)[first_leaf * ID_SIZE : last_leaf * ID_SIZE]
            run = b"".join(contents.read_leaves(view, keys))
        return run[skip * ID_SIZE : (skip + count) * ID_SIZE]

    def id_runs(self, opened: ObjectView) -> Iterator[bytes]:
        """All of an object's ids, in runs; each `next` may wait for the disk."""
        total = block_count(opened.state.size_bytes, self.block_size)
        step = 16 * LEAF_IDS
        for first in range(0, total, step):
            yield self.ids(opened, first, min(step, total - first))

    def filled(self, opened: ObjectView) -> Iterator[Splice]:
        """An object's block list without its holes; each `next` may wait for the disk."""
        return deltas.splices(b"", self.leaf_keys(opened), self._leaf)

    def splices(self, opened: ObjectView, place: Place, since: int) -> Iterator[Splice] | None:
        """What differs from an older version of the object; each `next` may wait for the disk.

        Returns:
            None when that version is not known as one of this object, by name or by uuid.
        """
        with self._catalogue.reading() as view:
            row, older = objects.look(view, place).row, view.version(since)
            if older is None or older.deleted:
                return None
            if uuid_text(older.uuid) != opened.state.uuid and (row is None or row.slot != older.slot):
                return None
            old_keys = contents.leaf_keys(view, older, self.block_size)
            new_keys = contents.leaf_keys(view, opened.record, self.block_size)

        return deltas.splices(old_keys, new_keys, self._leaf)

    def _leaf(self, key: bytes) -> bytes:
        with self._catalogue.reading() as view:
            return contents.leaf_row(view, key)[ID_SIZE:]

    def content(self, opened: ObjectView, start: int, length: int) -> Iterator[bytes]:
        """A byte range of an object, in pieces of about 1 MiB; each `next` may wait for the disk.

        Raises:
            CorruptBlockError: While iterating: a block is not readable. What was yielded before is right.
        """
        if opened.segments:
            for segment in opened.segments:
                size = segment.state.size_bytes
                first, last = max(0, start), min(size, start + length)
                if first < last:
                    yield from self.content(segment, first, last - first)
                start -= size
            return
        step = max(1, _READ_STEP_BYTES // self.block_size) * self.block_size
        end = start + length
        while start < end:
            piece_end = min(end, (start // step + 1) * step)
            yield self._piece(opened, start, piece_end - start)
            start = piece_end

    def _piece(self, opened: ObjectView, start: int, length: int) -> bytes:
        """Some bytes, within a few blocks."""
        parts = list(spans(start, length, self.block_size))
        first = parts[0].index
        ids = self.ids(opened, first, len(parts))
        pieces = [
            self._blocks.read(BlockId(ids[at * ID_SIZE : (at + 1) * ID_SIZE]), span.start, span.length)
            for at, span in enumerate(parts)
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def small_contents(self, at: Place, wanted: Sequence[tuple[str, int]], most_bytes: int) -> list[bytes | None]:
        """Contents of at most a block each.

        Args:
            at: The container.
            wanted: Names and versions.
            most_bytes: In all (one may exceed it, if it is the first).

        Returns:
            In the order of `wanted`; None for what is not there, longer, not readable, or beyond `most_bytes`.
        """
        found: list[bytes | None] = []
        left = most_bytes
        for name, version in wanted:
            data = self._small_content(replace(at, name=name), version) if left > 0 else None
            left -= len(data or b"")
            found.append(data)
        return found

    def _small_content(self, place: Place, version: int) -> bytes | None:
        try:
            opened = self.open_object(ReadOrder(place=place, version=version))
            size = opened.state.size_bytes
            return b"".join(self.content(opened, 0, size)) if size <= self.block_size else None
        except (Refusal, BlockfsError):  # a request for it alone says what is wrong
            return None


def _view(serial: int, record: VersionRecord) -> ObjectView:
    return ObjectView(state=objects.state_of(serial, record), record=record)


def _part(serial: int, record: VersionRecord) -> ObjectView:
    """A segment. Nothing is told of it but its bytes: thousands of them with their metadata would be some 100 MB."""
    return _view(serial, replace(record, meta={}, fields={}))


def _whole(opened: ObjectView, parts: tuple[ObjectView, ...]) -> ObjectView:
    """An object with its segments, and their size."""
    size = sum(segment.state.size_bytes for segment in parts)
    md5 = swift.joined_md5(segment.state.md5 for segment in parts)
    return replace(
        opened,
        state=replace(opened.state, size_bytes=size, md5=None),
        segments=parts,
        joined_md5=md5,
    )


def _told(opened: ObjectView, size_bytes: int, etag: str) -> ObjectView:
    """A static large object as its mark tells it, without a look at its segments."""
    state = replace(opened.state, size_bytes=size_bytes, md5=None)
    return replace(opened, state=state, joined_md5=bytes.fromhex(etag))


def _segment(view: Reading, account: str, listed: Segment) -> ObjectView:
    """A segment of a static large object, if it is still what the manifest lists: one without an MD5, by its time.

    Raises:
        Conflict: It is gone, or has another content.
    """
    try:
        place = Place(account=account, container=listed.container, name=listed.object_name)
        serial, record = objects.read_version(view, place, None)
    except NotFound:
        raise Conflict(f"The segment {listed.name[:200]!r} is gone") from None
    md5 = "" if record.md5 is None else record.md5.hex()
    is_same = (record.size_bytes, md5) == (listed.bytes, listed.hash)
    if not is_same or (not md5 and swift.iso(record.modified_us) != listed.last_modified):
        raise Conflict(f"The segment {listed.name[:200]!r} has another content than when the manifest was put")
    return _part(serial, record)
