"""Tokens: who may talk to the server.

A token file has lines `TOKEN ACCOUNT [QUOTA]`; blank lines and lines that begin with `#` are free. The quota is the
account's, e.g. `100GiB`; with several tokens of one account one line may say it, or all the same.

Tokens are read at the start and at SIGHUP. They are compared in constant time, all of them at each request.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping
from typing import Final

from blockfs.errors import UsageError as BlockfsUsageError
from blockfs.runtime.atomic import write_atomically
from blockfs.runtime.failures import said
from blockfs.runtime.units import parse_size
from syncer.errors import NotFoundError, UsageError
from syncer.protocol.pithos.names import container_name_problem
from syncer.server.http.urls import SWIFT_SEGMENT, VERSION_SEGMENT

DEFAULT_ACCOUNT: Final = "default"
MAX_QUOTA_BYTES: Final = 1 << 63
_TOKEN_BYTES: Final = 32  # of randomness: 256 bits can't be guessed


class Tokens:
    """The accounts by token.

    Attributes:
        quotas: Bytes by account; 0 for those without one.
    """

    def __init__(self, accounts: Mapping[str, str], quotas: Mapping[str, int] | None = None) -> None:
        self._accounts = [(token.encode("utf-8"), account) for token, account in accounts.items()]
        self.quotas: Final = dict.fromkeys(accounts.values(), 0) | dict(quotas or {})

    @property
    def known(self) -> frozenset[bytes]:
        """All tokens."""
        return frozenset(token for token, _ in self._accounts)

    def account(self, token: bytes) -> str | None:
        """Whose token this is; None for nobody's. Takes as long for every token of one length."""
        found = None
        for known, account in self._accounts:
            if hmac.compare_digest(known, token):
                found = account
        return found


def parse_tokens(text: str, source: str) -> Tokens:
    """Read a token file's text.

    Args:
        text: Its lines.
        source: Its path, for messages.

    Raises:
        UsageError: A line that is not `TOKEN ACCOUNT [QUOTA]`, a token given twice, two quotas of one account, or no
            token at all.
    """
    accounts: dict[str, str] = {}
    quotas: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{source}, line {number}"
        if len(words) not in {2, 3}:
            raise UsageError(f"{where}: expected TOKEN ACCOUNT [QUOTA], got {len(words)} words")
        token, account = words[:2]
        problem = container_name_problem(account)
        if problem is not None or account in {VERSION_SEGMENT, SWIFT_SEGMENT}:
            raise UsageError(f"{where}: {account!r} is no account name: {problem or 'it is part of our URLs'}")
        if token in accounts:
            raise UsageError(f"{where}: this token was given on an earlier line already")
        accounts[token] = account
        if len(words) == 3:
            quota = _quota(words[2], where)
            if quotas.setdefault(account, quota) != quota:
                raise UsageError(f"{where}: an earlier line gives {account!r} another quota")
    if not accounts:
        raise UsageError(f"{source} has no token; expected lines of the form TOKEN ACCOUNT")
    return Tokens(accounts, quotas)


def _quota(text: str, where: str) -> int:
    try:
        quota = parse_size(text)
    except BlockfsUsageError as error:
        raise UsageError(f"{where}: quota: {error}") from None
    if not 0 < quota < MAX_QUOTA_BYTES:
        raise UsageError(f"{where}: quota: expected more than 0 and less than 8 EiB, got {text}")
    return quota


def read_tokens(path: str) -> Tokens:
    """Read a token file.

    Raises:
        NotFoundError: There is none.
        UsageError: It can't be read, or makes no sense.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return parse_tokens(file.read(), path)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such token file; make one with a line TOKEN ACCOUNT") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be read as a token file: {said(error)}") from None


def make_token_file(path: str) -> None:
    """Make a file, readable by its owner only, with a random token for the account `default`; keep one that exists."""
    if not os.path.exists(path):
        write_atomically(path, f"{secrets.token_urlsafe(_TOKEN_BYTES)} {DEFAULT_ACCOUNT}\n".encode())
