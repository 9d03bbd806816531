"""A token file that is changed while a server reads it: a token more or less, and what the server sees of that."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from blockfs.runtime.atomic import space_errors, write_all
from blockfs.runtime.failures import said
from syncer.errors import NotFoundError, UsageError
from syncer.server.tokens import Token, Tokens, parse_lines, read_text, read_tokens, written

_Sign: TypeAlias = tuple[int, int, int] | None
"""Inode, time of its last change in nanoseconds, size; None: there is no file."""


class TokenFile:
    """A token file. Whoever changes it by this class waits for others that do; comments and order stay.

    A server's folder has one for as long as a server has run on it. The file is replaced as a whole, so a server that
    reads it has the old or the new one.
    """

    def __init__(self, path: str) -> None:
        """Of a path; the file must exist when it is used."""
        self.path: Final = os.path.abspath(path)

    def tokens(self) -> list[Token]:
        """All of it, in order.

        Raises:
            NotFoundError: There is no such file.
            UsageError: It makes no sense.
        """
        return parse_lines(read_text(self.path), self.path)

    def add(self, token: Token) -> None:
        """Add a token; durable when this returns.

        Raises:
            NotFoundError: There is no such file.
            UsageError: It makes no sense, it would with this token (two quotas of one account), or it can't be written.
        """
        with self._changing() as (text, folder):
            new = f"{text}\n" if text and not text.endswith("\n") else text
            new += f"{written(token)}\n"
            parse_lines(new, self.path)
            self._write(new, folder)

    def remove(self, ident: str) -> Token:
        """Take a token out; durable when this returns.

        Args:
            ident: See Token, or the beginning of it.

        Returns:
            What it was.

        Raises:
            NotFoundError: There is no such file, or no such token in it.
            UsageError: It makes no sense, several tokens begin so, it is the only one, or it can't be written.
        """
        with self._changing() as (text, folder):
            tokens = parse_lines(text, self.path)
            found = [token for token in tokens if ident and token.ident.startswith(ident)]
            if not found:
                raise NotFoundError(f"{self.path} has no token {ident}; `blocksync token list` shows what it has")
            if len(found) > 1:
                raise UsageError(f"{len(found)} tokens in {self.path} begin with {ident}; give more of its ID")
            if len(tokens) == 1:
                raise UsageError(
                    f"{ident} is the only token in {self.path}, and a server without one can't start; make another one "
                    "first, with `blocksync token new`"
                )
            gone = found[0]
            lines = text.splitlines(keepends=True)
            self._write("".join(line for line in lines if line.split()[:1] != [gone.secret]), folder)
            return gone

    @contextmanager
    def _changing(self) -> Iterator[tuple[str, int]]:
        """The text, and a descriptor of the folder, while nobody else changes it."""
        try:
            folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise NotFoundError(f"{self.path}: no such token file ({said(error)})") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield read_text(self.path), folder
        finally:
            os.close(folder)

    def _write(self, text: str, folder: int) -> None:
        """Replace the file durably. Order: temporary file → fsync → rename → fsync of the folder.

        Root does this in the folder of a server's user, who may be anybody by now: nothing is opened, or given to him,
        by a name that he could have put there.
        """
        name = os.path.basename(self.path)
        temporary = f".{name}.{secrets.token_hex(8)}"
        try:
            before = os.stat(name, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with space_errors(self.path):
                file = os.open(temporary, flags, 0o600, dir_fd=folder)
                try:
                    try:
                        write_all(file, text.encode(), 0)
                        if os.geteuid() == 0:  # a server of another user must still be able to read it
                            os.fchown(file, before.st_uid, before.st_gid)
                        os.fchmod(file, before.st_mode & 0o777)
                        os.fsync(file)
                    finally:
                        os.close(file)
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    with suppress(FileNotFoundError):
                        os.unlink(temporary, dir_fd=folder)
                    raise
                os.fsync(folder)
        except OSError as error:
            raise UsageError(f"{self.path} can't be written: {said(error)}") from None


class WatchedTokens:
    """A token file as a running server has it: read it, and read it again when it has changed."""

    def __init__(self, path: str) -> None:
        """From now on."""
        self._path = path
        self._told = self._last = self._sign()

    def read(self) -> Tokens:
        """All that is in it now.

        Raises:
            NotFoundError: There is no such file.
            UsageError: It can't be read, or makes no sense.
        """
        return read_tokens(self._path)

    def has_changed(self) -> bool:
        """Whether it has, told once of each change: when the file has rested between two looks."""
        before, self._last = self._last, self._sign()
        if self._last == self._told or self._last != before or self._last is None:
            return False
        self._told = self._last
        return True

    def _sign(self) -> _Sign:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns, status.st_size
