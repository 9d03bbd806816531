"""Block lists in the catalogue, and who may name which blocks.

A block list is kept as leaves (256 ids each, content-addressed, shared by all versions and accounts) and a list of leaf
keys. A version of a large object with one changed block costs one leaf and 32 bytes a leaf.

*Possession*: an account may name a block only if it uploaded it, or if one of its leaves has it. Everything else counts
as missing, so that knowing an id does not give the data. A leaf that the account has used before is its own as a whole:
its ids are not looked at again. That keeps a hashmap of 164 k ids with one changed block at 640 lookups.

Leaves are not reference-counted: a new version of a 10 GiB object would then rewrite 640 counters, where it now writes
two rows. The sweep finds the leaves that no version names (sweep.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS, leaf_key, leaf_root, object_hash, root_of_level
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, LeafKey, ObjectHash
from syncer.errors import CorruptionError
from syncer.server.catalogue.catalogue import Change, Reading
from syncer.server.catalogue.schema import ID, SERIAL, VersionRecord, content_key
from syncer.server.errors import BadRequest, MissingBlocks, Refusal

NO_CONTENT: Final = bytes(ID_SIZE)  # of an empty object
_LEAF_LEVEL: Final = 8  # a leaf is a Merkle subtree of 2**8 ids


class LeafVanished(Refusal):
    """A leaf that spared us a look at its ids was swept before the commit. Never leaves the server: prepare again."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A block list, ready to be committed.

    Attributes:
        size_bytes: Of the object.
        object_hash: Its Merkle root.
        keys: Of its leaves, in order.
        new: Rows (Merkle root and ids) of the leaves that the account has not used before.
        known: The others. They must still be there at the commit.
        uploaded: Blocks that this very request brings; their possession is recorded with it.
    """

    size_bytes: int
    object_hash: ObjectHash
    keys: tuple[LeafKey, ...]
    new: dict[LeafKey, bytes]
    known: frozenset[LeafKey]
    uploaded: tuple[BlockId, ...] = ()


class Leaves(msgspec.Struct, frozen=True):
    """Some leaves of a block list.

    Attributes:
        keys: In order.
        roots: Their Merkle roots.
        new: Rows of those that the account has not used before.
    """

    keys: list[LeafKey]
    roots: dict[LeafKey, bytes]
    new: dict[LeafKey, bytes]


def look_at_leaves(view: Reading, account: int | None, leaves: Iterable[bytes]) -> Leaves:
    """Find out which leaves are new for an account.

    Args:
        view: A snapshot.
        account: Who names them; None for an account that has never written.
        leaves: Their ids.
    """
    keys: list[LeafKey] = []
    roots: dict[LeafKey, bytes] = {}
    new: dict[LeafKey, bytes] = {}
    for ids in leaves:
        key = leaf_key(ids)
        keys.append(key)
        if key in roots:
            continue
        row = view.get("leaves", key)
        roots[key] = row[:ID_SIZE] if row is not None else leaf_root(ids)
        if row is None or account is None or view.get("account_leaves", ID.pack(account) + key) is None:
            new[key] = roots[key] + ids
    return Leaves(keys, roots, new)


def prepare(view: Reading, account: int | None, blocks: BlockList, uploaded: Sequence[BlockId] = ()) -> Prepared:
    """Find out which leaves of a block list are new for an account, and compute the object hash.

    Args:
        view: A snapshot.
        account: Who puts it; None for an account that has never written.
        blocks: The block list.
        uploaded: Blocks that come with the request.
    """
    found = look_at_leaves(view, account, blocks.leaves())
    keys, roots, new = found.keys, found.roots, found.new
    return Prepared(
        size_bytes=blocks.size_bytes,
        object_hash=root_of_leaves(b"".join([roots[key] for key in keys]), lambda: blocks.ids),
        keys=tuple(keys),
        new=new,
        known=frozenset(roots.keys() - new.keys()),
        uploaded=tuple([block_id for block_id in dict.fromkeys(uploaded) if block_id != ZERO_BLOCK]),
    )


def root_of_leaves(roots: bytes, ids: Callable[[], bytes]) -> ObjectHash:
    """Object hash of a block list.

    Args:
        roots: Concatenated Merkle roots of its leaves.
        ids: Gives all its ids, if there is no more than one leaf.
    """
    return root_of_level(roots, _LEAF_LEVEL) if len(roots) > ID_SIZE else object_hash(ids())


def require_possession(
    view: Reading, account: int | None, prepared: Prepared, blocks: BlockDirectory, hold: EpochHold
) -> None:
    """Check every id of the new leaves: the account's, and stored.

    Args:
        view: A snapshot.
        account: Who names the blocks.
        prepared: The block list.
        blocks: Where they must be.
        hold: Keeps them there until the commit.

    Raises:
        MissingBlocks: With those that are not.
    """
    missing = missing_of(view, account, prepared.new.values(), prepared.uploaded, blocks, hold)
    if missing:
        raise MissingBlocks(missing)


def missing_of(
    view: Reading,
    account: int | None,
    rows: Iterable[bytes],
    uploaded: Collection[BlockId],
    blocks: BlockDirectory,
    hold: EpochHold,
) -> list[BlockId]:
    """The ids in some leaves that an account may not name, or that are not stored: each once, in order.

    Args:
        view: A snapshot.
        account: Who names them.
        rows: Of the leaves.
        uploaded: Those that come with the request.
        blocks: Where they must be.
        hold: Keeps them there until the commit.
    """
    named: dict[BlockId, None] = {}
    for row in rows:
        named.update(dict.fromkeys(BlockId(row[at : at + ID_SIZE]) for at in range(ID_SIZE, len(row), ID_SIZE)))
    named.pop(ZERO_BLOCK, None)
    missing: set[BlockId] = set(named)
    if account is not None:
        prefix = ID.pack(account)
        brought = frozenset(uploaded)
        missing = {
            block_id
            for block_id in named
            if block_id not in brought and view.get("possessions", prefix + block_id) is None
        }
    missing.update(blocks.missing([block_id for block_id in named if block_id not in missing], hold))
    return [block_id for block_id in named if block_id in missing]


def require_fit(size_bytes: int, last: BlockId | None, blocks: BlockDirectory) -> None:
    """Check that the size doesn't cut the last block short: the hash of what can be read would not be its id.

    Args:
        size_bytes: Of the object.
        last: Its last block, which is there; None for an empty object.
        blocks: Where it is.

    Raises:
        BadRequest: It does.
    """
    if last is None:
        return
    tail_bytes = (size_bytes - 1) % blocks.block_size + 1
    (stored_bytes,) = blocks.stored_lengths([last])
    if stored_bytes > tail_bytes:
        raise BadRequest(f"The last block has {stored_bytes} bytes, but the object's size leaves {tail_bytes} for it")


def require_leaves(change: Change, account: int | None, prepared: Prepared) -> None:
    """Check, before anything is written, that the known leaves are still there.

    Raises:
        LeafVanished: One is not.
    """
    for key in prepared.known:
        assert account is not None
        if change.get("leaves", key) is None or change.get("account_leaves", ID.pack(account) + key) is None:
            raise LeafVanished("a leaf was swept")


def store(change: Change, account: int, prepared: Prepared) -> bytes:
    """Write what is new of a block list.

    The blocks it names are durable already: synced before this transaction began.

    Returns:
        What a version record holds as content.
    """
    record_uploads(change, account, prepared.uploaded)
    store_leaves(change, account, prepared.new)
    if len(prepared.keys) <= 1:
        return prepared.keys[0] if prepared.keys else NO_CONTENT
    joined = b"".join(prepared.keys)
    content = content_key(joined)
    if change.get("contents", content) is None:
        change.put("contents", content, joined)
    return content


def store_leaves(change: Change, account: int, rows: Mapping[LeafKey, bytes]) -> None:
    """Write leaves whose ids the account may name, and that they are its own."""
    for key, row in rows.items():
        if change.get("leaves", key) is None:
            change.put("leaves", key, row)
        change.put("account_leaves", ID.pack(account) + key, b"")


def record_uploads(change: Change, account: int, ids: Sequence[BlockId]) -> None:
    """Note that an account has sent blocks: from now on it may name them, and they stay for the time of grace."""
    now = SERIAL.pack(change.now_us)
    for block_id in ids:
        change.put("possessions", ID.pack(account) + block_id, now)


def grant(change: Change, account: int, keys: bytes) -> None:
    """Make leaves an account's own, because it may read what is made of them.

    Args:
        change: The transaction.
        account: Who may now name their blocks.
        keys: Concatenated leaf keys; leaves that are swept already are left out.
    """
    for at in range(0, len(keys), ID_SIZE):
        key = keys[at : at + ID_SIZE]
        row = change.get("leaves", key)
        if row is None or change.get("account_leaves", ID.pack(account) + key) is not None:
            continue
        ids = {BlockId(row[start : start + ID_SIZE]) for start in range(ID_SIZE, len(row), ID_SIZE)} - {ZERO_BLOCK}
        new = [block_id for block_id in ids if change.get("possessions", ID.pack(account) + block_id) is None]
        record_uploads(change, account, new)
        change.put("account_leaves", ID.pack(account) + key, b"")


def lacks(view: Reading, account: int | None, keys: bytes) -> bool:
    """Whether one of these leaves is not the account's own."""
    if account is None:
        return bool(keys)
    return any(
        view.get("account_leaves", ID.pack(account) + keys[at : at + ID_SIZE]) is None
        for at in range(0, len(keys), ID_SIZE)
    )


def leaf_keys(view: Reading, record: VersionRecord, block_size: int) -> bytes:
    """Concatenated keys of a version's leaves, in order."""
    blocks = block_count(record.size_bytes, block_size)
    if blocks == 0:
        return b""
    if blocks <= LEAF_IDS:
        return record.content
    joined = view.get("contents", record.content)
    if joined is None or len(joined) != -(-blocks // LEAF_IDS) * ID_SIZE:
        raise CorruptionError(f"the catalogue's block list {record.content.hex()} is missing or damaged")
    return joined


def read_leaves(view: Reading, keys: bytes) -> Iterator[bytes]:
    """The ids of some leaves, leaf by leaf.

    Args:
        view: A snapshot.
        keys: Concatenated leaf keys.
    """
    for at in range(0, len(keys), ID_SIZE):
        yield leaf_row(view, keys[at : at + ID_SIZE])[ID_SIZE:]


def leaf_row(view: Reading, key: bytes) -> bytes:
    """A leaf's Merkle root, then its ids."""
    row = view.get("leaves", key)
    if row is None:
        raise CorruptionError(f"the catalogue's leaf {key.hex()} is missing")
    return row
