"""Tokens without a sign-in: one that the user gives, and one that a linked root keeps of its last sign-in.

A kept one lies in the root's state, readable by its user alone, who has the credentials in a file, too: in clouds.yaml,
or with the key in that state. So it opens nothing that they don't. JSON, `KeptToken`:

    {"format": 1, "token": "…", "storage": "https://HOST:443/v1/AUTH_…", "until_s": 1790000000, "salt": "HEX",
     "credentials": "HEX"}

until_s: since the epoch; it is not used any more then. credentials: scrypt of what the token was asked for with, and of
the salt: other credentials ask for another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from blockfs.runtime.atomic import write_atomically
from syncer.errors import AuthError
from syncer.remote.http.address import HttpAddress, parse_address
from syncer.remote.http.transport import Transport
from syncer.remote.stores.swift.signin import MAX_TOKEN_BYTES, Access, SignIn

_FORMAT: Final = 1
_MOST_BYTES: Final = 64 << 10
_UNTOLD_S: Final = 3600.0  # where nobody says how long a token holds
_MOST_S: Final = 86400.0  # after a day somebody asks where the object store is, if not for the token
_EARLY_S: Final = 60.0  # before its end: a command takes a while
_SALT_BYTES: Final = 16


class GivenToken:
    """`SignIn` with a token that the user took elsewhere. Its text form does not show it."""

    def __init__(self, token: str, storage: HttpAddress) -> None:
        """Take OS_AUTH_TOKEN and OS_STORAGE_URL."""
        self._access: Access | None = Access(token=token, storage=storage)
        self.address = storage

    def __repr__(self) -> str:
        return f"GivenToken({self.address})"

    async def sign_in(self, transport: Transport) -> Access:  # noqa: ARG002 - nobody is asked
        """See SignIn: once; who asks again was refused.

        Raises:
            AuthError: The token is not accepted, or not any more.
        """
        await trio.lowlevel.checkpoint()
        access, self._access = self._access, None
        if access is None:
            raise AuthError(
                f"{self.address.origin} does not accept OS_AUTH_TOKEN: it has expired, or is of another account than "
                "OS_STORAGE_URL; take a new one (`openstack token issue`), and `blocksync link` again where it was kept"
            )
        return access


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the file has, see above."""

    format: int
    token: str
    storage: str
    until_s: float
    salt: str
    credentials: str

    def __repr__(self) -> str:
        return f"Kept({self.storage})"


class KeptToken:
    """`SignIn` that begins with what a file has; after that, and where it has nothing, as other credentials do."""

    def __init__(self, credentials: SignIn, path: str, clock_s: Callable[[], float] = time.time) -> None:
        """Begin.

        Args:
            credentials: How to sign in.
            path: Of the file, which need not be there. That it can't be written costs a sign-in each time.
            clock_s: Seconds since the epoch.
        """
        self._credentials = credentials
        self._path = path
        self._clock_s = clock_s
        self._is_read = False

    def __repr__(self) -> str:
        return f"KeptToken({self._credentials!r})"

    @property
    def address(self) -> HttpAddress:
        """See SignIn."""
        return self._credentials.address

    async def sign_in(self, transport: Transport) -> Access:
        """See SignIn. Who asks again was refused, or found nobody, with what was kept."""
        if not self._is_read:
            self._is_read = True
            kept = await trio.to_thread.run_sync(self._read)
            if kept is not None:
                return kept
        access = await self._credentials.sign_in(transport)
        await trio.to_thread.run_sync(self._write, access)
        return access

    def _read(self) -> Access | None:
        try:
            with open(self._path, "rb") as file:
                kept = msgspec.json.decode(file.read(_MOST_BYTES), type=Kept)
            storage, salt = parse_address(kept.storage), bytes.fromhex(kept.salt)
        except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
            return None
        left_s = kept.until_s - self._clock_s()
        is_text = kept.token.isascii() and kept.token.isprintable() and 0 < len(kept.token) <= MAX_TOKEN_BYTES
        if kept.format != _FORMAT or not is_text or not _EARLY_S < left_s <= _MOST_S:
            return None
        if self._named(salt) != kept.credentials:
            return None
        return Access(token=kept.token, storage=storage, is_kept=True)

    def _write(self, access: Access) -> None:
        salt = os.urandom(_SALT_BYTES)
        lasts_s = min(_UNTOLD_S if access.lasts_s is None else access.lasts_s, _MOST_S)
        kept = Kept(
            format=_FORMAT,
            token=access.token,
            storage=str(access.storage),
            until_s=self._clock_s() + lasts_s,
            salt=salt.hex(),
            credentials=self._named(salt),
        )
        with contextlib.suppress(OSError):
            write_atomically(self._path, msgspec.json.encode(kept) + b"\n", mode=0o600)

    def _named(self, salt: bytes) -> str:
        """The credentials, by what does not tell them. 10 ms."""
        said = msgspec.json.encode([type(self._credentials).__name__, self._credentials])
        return hashlib.scrypt(said, salt=salt, n=4096, r=8, p=1, dklen=32).hex()


def kept_at(credentials: SignIn, path: str | None) -> SignIn:
    """The same credentials, whose token is kept in a file; None: in none. A token that was given is not kept."""
    return credentials if path is None or isinstance(credentials, GivenToken) else KeptToken(credentials, path)
