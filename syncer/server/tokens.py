"""Tokens: who may talk to the server.

A token file has lines `TOKEN ACCOUNT [QUOTA] [until=TIME]`; blank lines and lines that begin with `#` are free. The
quota is the account's, e.g. `100GiB`; with several tokens of one account one line may say it, or all the same. TIME is
ISO 8601 with an offset, e.g. `2026-12-24T18:00:00Z`: from then on the token counts no more. The account `/metrics` is
none: its tokens open that page, and nothing else.

They are compared in constant time, all of them at each request.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from blockfs.errors import UsageError as BlockfsUsageError
from blockfs.runtime.atomic import write_atomically
from blockfs.runtime.failures import said
from blockfs.runtime.units import parse_size
from syncer.errors import NotFoundError, UsageError
from syncer.protocol.pithos.names import container_name_problem
from syncer.server.http.urls import SWIFT_SEGMENT, VERSION_SEGMENT

DEFAULT_ACCOUNT: Final = "default"
METRICS: Final = "/metrics"
"""Stands for an account. No account can be called so."""

MAX_QUOTA_BYTES: Final = 1 << 63
_TOKEN_BYTES: Final = 32  # of randomness: 256 bits can't be guessed
_UNTIL: Final = "until="
_IDENT_DIGITS: Final = 12


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a token file.

    Attributes:
        secret: What the client sends.
        account: Whose.
        quota_bytes: The account's; 0: this line says none.
        until_s: Unix time from which on it counts no more; None: it has no end.
    """

    secret: str
    account: str
    quota_bytes: int = 0
    until_s: float | None = None

    @property
    def ident(self) -> str:
        """A name for it that tells nothing of the secret: hexadecimal digits of its SHA-256."""
        return hashlib.sha256(self.secret.encode()).hexdigest()[:_IDENT_DIGITS]

    def counts(self, now_s: float) -> bool:
        """Whether it has not ended yet."""
        return self.until_s is None or now_s < self.until_s

    def __repr__(self) -> str:
        return f"Token(ident={self.ident!r}, account={self.account!r})"


class Tokens:
    """The accounts by token.

    Attributes:
        quotas: Bytes by account; 0 for those without one.
    """

    def __init__(self, tokens: Sequence[Token], clock_s: Callable[[], float] = time.time) -> None:
        """Of a file.

        Args:
            tokens: Its lines.
            clock_s: Unix time.
        """
        self._known = [(token.secret.encode(), token) for token in tokens]
        self._clock_s = clock_s
        self.quotas: Final = dict.fromkeys((token.account for token in tokens if token.account != METRICS), 0)
        self.quotas.update((token.account, token.quota_bytes) for token in tokens if token.quota_bytes)

    @property
    def known(self) -> frozenset[bytes]:
        """All tokens that count now."""
        now_s = self._clock_s()
        return frozenset(secret for secret, token in self._known if token.counts(now_s))

    def account(self, token: bytes) -> str | None:
        """Whose token this is; None for nobody's. Takes as long for every token of one length."""
        account = self._account(token)
        return None if account == METRICS else account

    def opens_metrics(self, token: bytes) -> bool:
        """Whether this token is for the page of figures. Takes as long for every token of one length."""
        return self._account(token) == METRICS

    def _account(self, token: bytes) -> str | None:
        found = None
        for secret, known in self._known:
            if hmac.compare_digest(secret, token):
                found = known
        return found.account if found is not None and found.counts(self._clock_s()) else None


def parse_lines(text: str, source: str) -> list[Token]:
    """Read a token file's text.

    Args:
        text: Its lines.
        source: Its path, for messages.

    Returns:
        One for each line that has a token, in order.

    Raises:
        UsageError: A line that is not `TOKEN ACCOUNT [QUOTA] [until=TIME]`, a token given twice, or two quotas of one
            account.
    """
    tokens: dict[str, Token] = {}
    quotas: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{source}, line {number}"
        token = _token(words, where)
        if token.secret in tokens:
            raise UsageError(f"{where}: this token was given on an earlier line already")
        if token.quota_bytes and quotas.setdefault(token.account, token.quota_bytes) != token.quota_bytes:
            raise UsageError(f"{where}: an earlier line gives {token.account!r} another quota")
        tokens[token.secret] = token
    return list(tokens.values())


def parse_tokens(text: str, source: str, clock_s: Callable[[], float] = time.time) -> Tokens:
    """The accounts of a token file's text.

    Args:
        text: Its lines.
        source: Its path, for messages.
        clock_s: Unix time.

    Raises:
        UsageError: As `parse_lines`, or no token at all.
    """
    tokens = parse_lines(text, source)
    if not tokens:
        raise UsageError(f"{source} has no token; expected lines of the form TOKEN ACCOUNT")
    return Tokens(tokens, clock_s)


def _token(words: Sequence[str], where: str) -> Token:
    untils = [word for word in words[2:] if word.startswith(_UNTIL)]
    quotas = [word for word in words[2:] if not word.startswith(_UNTIL)]
    if len(words) < 2 or len(untils) > 1 or len(quotas) > 1:
        raise UsageError(f"{where}: expected TOKEN ACCOUNT [QUOTA] [until=TIME], got {len(words)} words")
    secret, account = words[:2]
    check_account(account, where)
    if account == METRICS and quotas:
        raise UsageError(f"{where}: {METRICS} is no account, so it has no quota")
    return Token(
        secret=secret,
        account=account,
        quota_bytes=parse_quota(quotas[0], where) if quotas else 0,
        until_s=_until(untils[0].removeprefix(_UNTIL), where) if untils else None,
    )


def check_account(account: str, where: str) -> None:
    """Refuse what can't stand for an account.

    Args:
        account: Its name, or `METRICS`.
        where: It stands, for the message.

    Raises:
        UsageError: It can't.
    """
    if account == METRICS:
        return
    problem = container_name_problem(account)
    if problem is not None or account in {VERSION_SEGMENT, SWIFT_SEGMENT}:
        raise UsageError(f"{where}: {account!r} is no account name: {problem or 'it is part of our URLs'}")


def parse_quota(text: str, where: str) -> int:
    """Read an account's quota.

    Args:
        text: A size.
        where: It stands, for the message.

    Returns:
        Bytes.

    Raises:
        UsageError: No size, or none that can be a quota.
    """
    try:
        quota = parse_size(text)
    except BlockfsUsageError as error:
        raise UsageError(f"{where}: quota: {error}") from None
    if not 0 < quota < MAX_QUOTA_BYTES:
        raise UsageError(f"{where}: quota: expected more than 0 and less than 8 EiB, got {text}")
    return quota


def _until(text: str, where: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(f"{where}: until: expected a time with an offset, such as 2026-12-24T18:00:00Z, got {text}")
    return moment.timestamp()


def written(token: Token) -> str:
    """The line of a token, without a line's end."""
    words = [token.secret, token.account]
    if token.quota_bytes:
        words.append(f"{token.quota_bytes}B")
    if token.until_s is not None:
        words.append(f"{_UNTIL}{time_text(token.until_s)}")
    return " ".join(words)


def time_text(unix_s: float) -> str:
    """A time as token files have it, in whole seconds of UTC."""
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_secret() -> str:
    """A token that nobody can guess. One that begins with a hyphen would be an option to programs: `swift -K TOKEN`."""
    while (drawn := secrets.token_urlsafe(_TOKEN_BYTES)).startswith("-"):
        pass
    return drawn


def read_tokens(path: str) -> Tokens:
    """Read a token file.

    Raises:
        NotFoundError: There is none.
        UsageError: It can't be read, or makes no sense.
    """
    return parse_tokens(read_text(path), path)


def read_text(path: str) -> str:
    """The text of a token file.

    Raises:
        NotFoundError: There is none.
        UsageError: It can't be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such token file; make one with a line TOKEN ACCOUNT") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be read as a token file: {said(error)}") from None


def make_token_file(path: str) -> None:
    """Make a file, readable by its owner only, with a random token for the account `default`; keep one that exists."""
    if not os.path.exists(path):
        write_atomically(path, f"{new_secret()} {DEFAULT_ACCOUNT}\n".encode())
