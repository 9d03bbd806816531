"""The key of a share on its server: read when a listing tells of another one, made when there is none, rotated.

It costs no request in a cycle that changes nothing: a listing, or a list of changes, tells of the object beside. What
was read is kept in the root's state folder, so blocks come from peers also while the server is away. Whatever goes
wrong with the key turns the LAN off for this share, which `status` says; it never fails a cycle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from blockfs.errors import BlockfsError
from syncer.core.model import Kind, RelPath, RemoteTag, meta_of
from syncer.core.paths import LAN_KEY, PRIVATE
from syncer.errors import (
    ConflictOnRemoteError,
    ForbiddenError,
    FormatTooNewError,
    NoSpaceError,
    SyncerError,
    UsageError,
)
from syncer.peer import sharekey
from syncer.peer.sharekey import KEY_BYTES, BadKey, Kept, StoredKey
from syncer.ports.orders import InMemory, Store, write_one
from syncer.ports.remote import KeySign, Remote, Secret
from syncer.state.keyfile import KeyFile

if TYPE_CHECKING:  # see peer/sharekey.py
    from syncer.peer.session.keyring import RootKey

_PATH: Final = RelPath(LAN_KEY)
_META: Final = meta_of(0o600)  # a root of the whole container sees the key of a folder's share as a file
_FOLDER: Final = Store(path=RelPath(PRIVATE), kind=Kind.DIRECTORY, meta=meta_of(0o700))
_TRIES: Final = 3  # somebody else may make or rotate it at the same moment, who then is done


class LanKeyKeeper:
    """Looks after one root's key."""

    def __init__(
        self,
        share: str,
        file: KeyFile,
        *,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Keep what is needed.

        Args:
            share: Names the share. What was kept for another one is forgotten.
            file: Where the key is kept.
            clock: Seconds since the epoch.
            random: So many random bytes.
        """
        self._share = share
        self._file = file
        self._clock = clock
        self._random = random

    def kept(self) -> Kept:
        """What is remembered. Blocking.

        Raises:
            FormatTooNewError: A newer program wrote it.
        """
        return self._decoded(self._file.read())

    def _decoded(self, raw: bytes | None) -> Kept:
        found = None if raw is None else sharekey.decode_kept(raw)
        if isinstance(found, int):
            raise FormatTooNewError(self._file.path, found, sharekey.FORMAT)
        return found if found is not None and found.share == self._share else Kept(share=self._share)

    def keys_now(self) -> tuple[RootKey, ...]:
        """The keys that count now, the newest first; without the server. Blocking.

        Raises:
            FormatTooNewError: See `kept`.
        """
        return sharekey.keys_now(self.kept(), self._clock())

    def use_passphrase(self, passphrase: str, account: str, container: str, prefix: str) -> Kept:
        """From now on take the key that a passphrase makes; no object is looked at. Blocking.

        Args:
            passphrase: See `sharekey.from_passphrase`, as for the others.
            account: See there.
            container: See there.
            prefix: See there.

        Raises:
            UsageError: It is too short.
            FormatTooNewError: See `kept`.
        """
        made = sharekey.from_passphrase(self.kept(), passphrase, account, container, prefix, self._clock())
        self._file.write(sharekey.encode_kept(made))
        return made

    def forget_passphrase(self) -> bool:
        """Go back to the share's key on the server, which the next cycle reads. Blocking.

        Returns:
            Whether there was a passphrase.

        Raises:
            FormatTooNewError: See `kept`.
        """
        kept = self.kept()
        if kept.passphrase:
            forgotten = Kept(share=self._share, highest=kept.highest, seen_s=int(self._clock()))
            self._file.write(sharekey.encode_kept(forgotten))
        return kept.passphrase

    async def attend(self, remote: Remote, sign: KeySign) -> list[RemoteTag]:
        """In a cycle that may write: take over what changed, make a key where there is none, rotate one that is due.

        Args:
            remote: The share.
            sign: What this cycle's look told.

        Returns:
            Versions that were written: of the object, and of the directory that it is in.
        """
        try:
            raw = await trio.to_thread.run_sync(self._file.read)
            kept = self._decoded(raw)
        except (FormatTooNewError, OSError):
            return []  # a newer program's is left alone; `status` says so
        if kept.passphrase:
            return []
        written: list[RemoteTag] = []
        counters = remote.counters
        blocks = counters.blocks_sent, counters.blocks_received
        try:
            found = await self._attended(remote, kept, sign, written)
        except SyncerError:
            return written  # the next cycle asks again: nothing was found out
        finally:
            counters.blocks_sent, counters.blocks_received = blocks  # a key is no block of a file
        if found != kept:
            with suppress(BlockfsError, OSError):  # not kept, so the next cycle finds it out again
                await trio.to_thread.run_sync(self._file.swap, raw, sharekey.encode_kept(found))
        return written

    async def _attended(self, remote: Remote, kept: Kept, sign: KeySign, written: list[RemoteTag]) -> Kept:
        """See `attend`."""
        try:
            found = await self._looked(remote, kept, sign, written)
        except (ForbiddenError, NoSpaceError) as error:
            reason = f"the share's key can't be read or made: {error}"
            if isinstance(error, ForbiddenError):
                reason += "; the first device that may write to the share makes it"
            found = sharekey.refused(kept, reason, self._clock())
        if sharekey.is_due(found, self._clock()):
            return await self._rotated_in_passing(remote, found, written)
        return found

    async def _rotated_in_passing(self, remote: Remote, kept: Kept, written: list[RemoteTag]) -> Kept:
        """Rotate a key that is due. Who may not goes on with the one that there is, until another device does."""
        try:
            return await self._rotated(remote, kept, written)
        except SyncerError:
            return msgspec.structs.replace(kept, tried_s=int(self._clock()))

    async def rotate(self, remote: Remote) -> Kept:
        """Replace the key now, e.g. because a member left: the old one counts for 24 hours more.

        Raises:
            UsageError: The key is made from a passphrase.
            FormatTooNewError: A newer program made the key.
            ForbiddenError: The server does not let us.
            SyncerError: The server is away, …: the key is as it was, or has just been rotated.
        """
        kept = await trio.to_thread.run_sync(self.kept)
        if kept.passphrase:
            raise UsageError(
                "the share's key is made from a passphrase here; `blocksync peers passphrase` sets another one, on "
                "each device, and with --clear takes the key on the server again"
            )
        found = await self._rotated(remote, await self._found(remote, kept), [])
        await trio.to_thread.run_sync(self._file.write, sharekey.encode_kept(found))
        return found

    async def _looked(self, remote: Remote, kept: Kept, sign: KeySign, written: list[RemoteTag]) -> Kept:
        """What is known after this cycle's signs."""
        again = sharekey.may_try(kept, self._clock())
        if sign.stat is not None and sign.stat.tag.name != kept.version:
            return await self._found(remote, kept)
        if sign.gone and kept.highest:
            return sharekey.gone(kept, self._clock()) if kept.version else kept
        if sign.gone:
            return await self._made(remote, kept, written) if again else kept
        if not again or (kept.key is not None and not kept.off):
            return kept
        found = await self._found(remote, kept)  # there is none to use, and nobody told of one: once a day
        return found if found.version or found.highest else await self._made(remote, found, written)

    async def _found(self, remote: Remote, kept: Kept) -> Kept:
        """Ask the server."""
        found = await remote.secret(_PATH, sharekey.MAX_OBJECT_BYTES)
        return sharekey.gone(kept, self._clock()) if found is None else self._taken(kept, found)

    def _taken(self, kept: Kept, found: Secret) -> Kept:
        """Take over one version of the object."""
        return sharekey.accepted(kept, _key_in(found), found.tag.name, self._clock())

    async def _made(self, remote: Remote, kept: Kept, written: list[RemoteTag]) -> Kept:
        """Make the first key, if nobody else does at this moment."""
        for _ in range(_TRIES):
            made = sharekey.first_key(self._random(KEY_BYTES), self._clock())
            try:
                return await self._put(remote, kept, made, None, written)
            except ConflictOnRemoteError:
                found = await self._found(remote, kept)
                if found.version:
                    return found
        return kept

    async def _rotated(self, remote: Remote, kept: Kept, written: list[RemoteTag]) -> Kept:
        """Replace the key that `kept` knows, unless somebody else just did."""
        for _ in range(_TRIES):
            there = await remote.secret(_PATH, sharekey.MAX_OBJECT_BYTES)
            if there is not None and there.tag.name != kept.version:
                found = self._taken(kept, there)
                if found.highest > kept.highest:
                    return found
                kept = found
            if there is not None and kept.off:
                _refuse_newer(there)
            made = sharekey.rotated(kept, self._random(KEY_BYTES), self._clock())
            try:
                return await self._put(remote, kept, made, None if there is None else there.tag, written)
            except ConflictOnRemoteError:
                continue
        raise ConflictOnRemoteError(_PATH, "a key that stays while it is replaced", "others that replace it")

    async def _put(
        self, remote: Remote, kept: Kept, made: StoredKey, expect: RemoteTag | None, written: list[RemoteTag]
    ) -> Kept:
        new = []
        with suppress(ConflictOnRemoteError):  # there is one
            # Before the key: kamaki's `download -r` makes a directory only of an object, and fails where it has none.
            new.append(await write_one(remote, _FOLDER))
        grid = (await remote.open()).grid
        raw = InMemory.of(sharekey.encode(made), grid.block_size)
        order = Store(path=_PATH, kind=Kind.FILE, meta=_META, replaces=expect, content=raw.content)
        new.append(await write_one(remote, order, raw))
        await remote.commit()
        tags = [stored.tag for stored in new if stored.tag is not None]
        written += tags
        return sharekey.accepted(kept, made, tags[-1].name, self._clock())


def _key_in(found: Secret) -> StoredKey | BadKey:
    """What anybody who may write to the share may have made."""
    if found.raw is None:
        reason = (
            f"is no file of 1 to {sharekey.MAX_OBJECT_BYTES} bytes, or is damaged; it has {found.tag.size_bytes} bytes"
        )
        return BadKey(reason=reason)
    return sharekey.decode(found.raw)


def _refuse_newer(found: Secret) -> None:
    """A key of a newer program is not overwritten, whatever else is wrong with one is."""
    key = _key_in(found)
    if isinstance(key, BadKey) and key.format:
        raise FormatTooNewError("the share's key on the server", key.format, sharekey.FORMAT)
