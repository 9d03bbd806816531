"""Token files."""

from __future__ import annotations

import secrets
import stat
from pathlib import Path

import pytest

from syncer.errors import NotFoundError, UsageError
from syncer.server.tokens import make_token_file, new_secret, parse_tokens, read_tokens


def test_tokens_name_accounts() -> None:
    tokens = parse_tokens("# us\n\nsecret alice\n  other\tbob \n", "t")
    assert tokens.account(b"secret") == "alice"
    assert tokens.account(b"other") == "bob"
    assert tokens.account(b"secre") is None
    assert tokens.account(b"") is None
    assert tokens.account(b"\xff") is None


def test_a_token_for_figures_is_nobodys_and_has_no_quota() -> None:
    tokens = parse_tokens("secret alice\nwatch /metrics\nlate /metrics until=2001-01-01T00:00:00Z\n", "t")
    assert tokens.account(b"watch") is None
    assert [tokens.opens_metrics(each) for each in (b"watch", b"secret", b"late", b"", b"watc")] == [True, *[False] * 4]
    assert tokens.quotas == {"alice": 0}
    assert tokens.known == {b"secret", b"watch"}


@pytest.mark.parametrize(
    "text",
    ["", "# none\n", "lonely\n", "a b c\n", "t a/b\n", "t v1\n", "t a\nt b\n", "t /metrics 1GiB\n", "t /other\n"],
)
def test_a_token_file_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_tokens(text, "t")


def test_a_made_token_file_is_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    make_token_file(str(path))
    made = path.read_text()
    token, account = made.split()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_tokens(str(path)).account(token.encode()) == account == "default"
    make_token_file(str(path))
    assert path.read_text() == made


def test_a_missing_or_unreadable_token_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_tokens(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe a")
    for path in (tmp_path, tmp_path / "binary"):
        with pytest.raises(UsageError):
            read_tokens(str(path))


def test_no_new_token_is_taken_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of others take it on their command lines: `swift -K TOKEN`."""
    drawn = iter(["-Kx", "--x", "x-"])
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _bytes: next(drawn))
    assert new_secret() == "x-"
