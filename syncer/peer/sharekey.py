"""The key of a share: what the object `.blocksync/lan-key` says, which keys count now, and what is to be done about it.

32 random bytes, `K_root` of `peer.keys`. Who may read the share on its server can read the object, and nobody else can:
the server's access control is what decides who is a peer. The object is JSON:

    {"format": 1, "generation": 3, "made_s": 1790000000, "key": "HEX", "old": "HEX"}

generation: from 1, one more with each rotation. made_s: when `key` was made, seconds since the epoch by the maker's
clock. old: the key before it, null if there was none or it is not to count. An object of a newer format is left alone.

A key that was replaced counts for 24 hours more, so that devices which have not looked yet are still understood.
A device keeps what it read (`Kept`), with the highest generation that it saw: an older one is a server that was put
back, and its key may be known to who was removed since.

Source: docs/design/share-index.md, section 5.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import TYPE_CHECKING, Final

import msgspec

from syncer.errors import UsageError

if TYPE_CHECKING:  # with a library of ciphers, which a cycle without peers does not need: 40 ms
    from syncer.peer.session.keyring import RootKey

KEY_BYTES: Final = 32
FORMAT: Final = 1
MAX_OBJECT_BYTES: Final = 4096  # ours has 220; whoever may write to the share may write anything
OLD_COUNTS_S: Final = 24 * 3600.0
ROTATE_AFTER_S: Final = 30 * 24 * 3600.0
LOOK_AFTER_S: Final = 24 * 3600.0  # a key that could not be made or read is tried again so much later
_MAX_GENERATION: Final = 1 << 48
_MAX_AHEAD: Final = 1 << 20  # rotations that a device may have missed: one an hour for a century
_MAX_TIME_S: Final = 1 << 40

MIN_PASSPHRASE: Final = 12  # characters; with 0.4 s a guess even so few letters drawn by chance are out of reach
_SCRYPT_N: Final = 1 << 17  # with r = 8: 128 MiB and some 0.4 s for each guess
_SCRYPT_MEMORY: Final = 192 << 20


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """What the object says.

    Attributes:
        generation: From 1.
        made_s: When `key` was made, seconds since the epoch.
        key: 32 bytes.
        old: The key before it; None: there was none, or it is not to count.
    """

    generation: int
    made_s: int
    key: bytes
    old: bytes | None = None

    def __repr__(self) -> str:
        return f"StoredKey(generation={self.generation})"  # keys never reach a log


class BadKey(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is no key of ours.

    Attributes:
        reason: Completes "the share's key on the server …".
        format: Its format, if that is a newer one; else 0.
    """

    reason: str
    format: int = 0


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a device remembers of a share's key. In a file that nobody else can read.

    Attributes:
        share: Whose key it is: a root that was linked to another container begins anew.
        key: As last read and accepted; None: there is none.
        highest: Highest generation that was ever seen; 0: none.
        seen_s: When this generation was first seen, by our own clock.
        version: The object's version that was read, as the remote names it; empty: none.
        tried_s: When it was last tried to read or make one, by our own clock; 0: never.
        off: Why there is no key to use, in words for `status`; empty: there is one, or none was looked for.
        passphrase: `key` was made from a passphrase: no object is looked at.
    """

    share: str
    key: StoredKey | None = None
    highest: int = 0
    seen_s: int = 0
    version: str = ""
    tried_s: int = 0
    off: str = ""
    passphrase: bool = False

    def __repr__(self) -> str:
        return f"Kept(share={self.share!r}, key={self.key!r}, off={self.off!r})"


class _Format(msgspec.Struct, frozen=True, kw_only=True):
    format: int


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """The object's fields; see the module."""

    format: int
    generation: int
    made_s: int
    key: str
    old: str | None


# --- the object


def encode(share_key: StoredKey) -> bytes:
    """The object's bytes."""
    record = _Record(
        format=FORMAT,
        generation=share_key.generation,
        made_s=share_key.made_s,
        key=share_key.key.hex(),
        old=None if share_key.old is None else share_key.old.hex(),
    )
    return msgspec.json.encode(record) + b"\n"


def decode(raw: bytes) -> StoredKey | BadKey:
    """The key in an object; never an error, whatever the bytes are."""
    if len(raw) > MAX_OBJECT_BYTES:
        return BadKey(reason=f"has {len(raw)} bytes, which no key has")
    try:
        found = msgspec.json.decode(raw, type=_Format).format
        if found > FORMAT:
            reason = f"has format {found}, this blocksync knows up to {FORMAT}: use a newer blocksync"
            return BadKey(reason=reason, format=found)
        record = msgspec.json.decode(raw, type=_Record)
        key, old = bytes.fromhex(record.key), None if record.old is None else bytes.fromhex(record.old)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return BadKey(reason="is malformed")
    sound = (
        record.format == FORMAT
        and 1 <= record.generation <= _MAX_GENERATION
        and 0 <= record.made_s <= _MAX_TIME_S
        and len(key) == KEY_BYTES
        and (old is None or len(old) == KEY_BYTES)
        and key != old
    )
    if not sound:
        return BadKey(reason="is malformed")
    return StoredKey(generation=record.generation, made_s=record.made_s, key=key, old=old)


# --- rules


def first_key(random: bytes, now_s: float) -> StoredKey:
    """The key of a share that has none; `random` are 32 fresh random bytes."""
    assert len(random) == KEY_BYTES
    return StoredKey(generation=1, made_s=int(now_s), key=random)


def rotated(kept: Kept, random: bytes, now_s: float) -> StoredKey:
    """The next key. Also after a rollback: its generation is higher than any that was seen.

    The key that counted here until now counts on for 24 hours. One that did not count, after a rollback, does not.
    """
    assert len(random) == KEY_BYTES
    old = kept.key.key if kept.key is not None and not kept.off and not kept.passphrase else None
    return StoredKey(generation=kept.highest + 1, made_s=int(now_s), key=random, old=old)


def keys_now(kept: Kept, now_s: float) -> tuple[RootKey, ...]:
    """The keys that count, the newest first; none while the LAN is off for the share.

    The old one ends 24 hours after the new one was made, or was first seen here, whichever is earlier: a maker whose
    clock is ahead does not prolong it.
    """
    from syncer.peer.session.keyring import RootKey  # noqa: PLC0415 - see above

    if kept.off or kept.key is None:
        return ()
    until_s = min(kept.key.made_s, kept.seen_s) + OLD_COUNTS_S
    newest = RootKey(raw=kept.key.key)
    if kept.key.old is None or now_s >= until_s:
        return (newest,)
    return newest, RootKey(raw=kept.key.old, until_unix_s=until_s)


def is_due(kept: Kept, now_s: float) -> bool:
    """Whether to rotate the key, by our clock. Who can't is asked again a day later."""
    if kept.key is None or kept.off or kept.passphrase:
        return False
    return now_s - kept.key.made_s >= ROTATE_AFTER_S and may_try(kept, now_s)


def accepted(kept: Kept, found: StoredKey | BadKey, version: str, now_s: float) -> Kept:
    """What is remembered after the object was read.

    Another key of the same generation is taken: two devices made one at once, on a server that lets both. An older
    generation is not; nor is one that nobody can have come to, or who writes the highest one would end all rotations.
    """
    tried = msgspec.structs.replace(kept, version=version, tried_s=int(now_s))
    if isinstance(found, BadKey):
        return msgspec.structs.replace(tried, off=f"the share's key on the server {found.reason}")
    if found.generation < kept.highest:
        reason = (
            f"the share's key on the server is an older one (generation {found.generation}, {kept.highest} was seen); "
            "`blocksync peers rotate` makes a new one"
        )
        return msgspec.structs.replace(tried, off=reason)
    if found.generation > kept.highest + _MAX_AHEAD:
        reason = (
            f"the share's key on the server is none that a device made (generation {found.generation}, {kept.highest} "
            "was seen); `blocksync peers rotate` makes a new one"
        )
        return msgspec.structs.replace(tried, off=reason)
    seen_s = kept.seen_s if found.generation == kept.highest else int(now_s)
    return msgspec.structs.replace(tried, key=found, highest=found.generation, seen_s=seen_s, off="")


def gone(kept: Kept, now_s: float) -> Kept:
    """What is remembered after the object was found missing."""
    off = (
        "" if not kept.highest else "the share's key is gone from the server; `blocksync peers rotate` makes a new one"
    )
    return msgspec.structs.replace(kept, version="", tried_s=int(now_s), off=off)


def refused(kept: Kept, reason: str, now_s: float) -> Kept:
    """What is remembered after the server did not let us read or make a key."""
    return msgspec.structs.replace(kept, tried_s=int(now_s), off=reason)


def may_try(kept: Kept, now_s: float) -> bool:
    """Whether to ask the server without any sign of a change: the first time, and a day after it was in vain."""
    return not kept.tried_s or not 0 <= now_s - kept.tried_s < LOOK_AFTER_S


def from_passphrase(kept: Kept, passphrase: str, account: str, container: str, prefix: str, now_s: float) -> Kept:
    """A key that people agreed on by word of mouth; the server never sees it. Takes 128 MiB and some 0.4 s.

    Args:
        kept: What is remembered until now. Of it stays how new a key on the server was seen.
        passphrase: As typed; its characters count, not the spaces around it, nor how a keyboard puts accents together.
        account: Of the container's owner. With the others the salt: one passphrase makes another key for each share.
        container: Its name.
        prefix: The folder of the container, without slashes around it; empty: all of it.
        now_s: Now.

    Raises:
        UsageError: It is shorter than `MIN_PASSPHRASE` characters.
    """
    typed = unicodedata.normalize("NFC", passphrase).strip()
    if len(typed) < MIN_PASSPHRASE:
        raise UsageError(
            f"a passphrase needs at least {MIN_PASSPHRASE} characters, this one has {len(typed)}: whoever records a "
            "question on the network can try passphrases at home; six words that you draw by dice do"
        )
    parts = [text.encode() for text in (account, container, prefix)]
    salt = b"blocksync-lan/1 passphrase" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    key = hashlib.scrypt(typed.encode(), salt=salt, n=_SCRYPT_N, r=8, p=1, maxmem=_SCRYPT_MEMORY, dklen=KEY_BYTES)
    made = StoredKey(generation=1, made_s=int(now_s), key=key)
    return Kept(share=kept.share, key=made, highest=kept.highest, seen_s=int(now_s), passphrase=True)


def mark_of(key: bytes) -> str:
    """Eight hex digits that tell whether two devices have the same key. They say nothing of it to who has it not."""
    return hashlib.blake2b(key, digest_size=4, person=b"blocksync mark").hexdigest()


# --- what a device keeps


class _KeptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file's fields: those of `Kept`, and its format."""

    format: int
    share: str
    key: str
    highest: int
    seen_s: int
    version: str
    tried_s: int
    off: str
    passphrase: bool


def encode_kept(kept: Kept) -> bytes:
    """The file's bytes: JSON; `key` is the object's text, empty if there is none."""
    record = _KeptRecord(
        format=FORMAT,
        share=kept.share,
        key="" if kept.key is None else encode(kept.key).decode(),
        highest=kept.highest,
        seen_s=kept.seen_s,
        version=kept.version,
        tried_s=kept.tried_s,
        off=kept.off,
        passphrase=kept.passphrase,
    )
    return msgspec.json.encode(record) + b"\n"


def decode_kept(raw: bytes) -> Kept | int | None:
    """What a device kept; a newer format's number; None if it is damaged."""
    try:
        found = msgspec.json.decode(raw, type=_Format).format
        if found > FORMAT:
            return found
        record = msgspec.json.decode(raw, type=_KeptRecord)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    key = decode(record.key.encode()) if record.key else None
    if isinstance(key, BadKey):
        return None
    return Kept(
        share=record.share,
        key=key,
        highest=record.highest,
        seen_s=record.seen_s,
        version=record.version,
        tried_s=record.tried_s,
        off=record.off,
        passphrase=record.passphrase,
    )
