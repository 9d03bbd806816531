"""Token files that are changed while a server reads them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from syncer.errors import NotFoundError, UsageError
from syncer.server.tokenfile import TokenFile, WatchedTokens
from syncer.server.tokens import Token, parse_lines, parse_tokens, time_text, written

TEXT = "# of the house\nsecret alice 1MiB\n\n  other\tbob until=2026-12-24T18:00:00Z \n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "tokens"
    made.write_text(TEXT)
    made.chmod(0o640)
    return made


def token(secret: str, account: str = "carol", **more: object) -> Token:
    return Token(secret=secret, account=account, **more)


def test_a_token_ends_at_its_time() -> None:
    now = [0.0]
    tokens = parse_tokens("a alice until=1970-01-01T00:01:40Z\nb bob\n", "t", lambda: now[0])
    now[0] = 99.9
    assert (tokens.account(b"a"), tokens.known) == ("alice", {b"a", b"b"})
    now[0] = 100.0
    assert (tokens.account(b"a"), tokens.known) == (None, {b"b"})


@pytest.mark.parametrize(
    "line", ["t a until=", "t a until=soon", "t a until=2026-12-24T18:00:00", "t a 1 2", "t a until=2026-12-24Z x y"]
)
def test_words_that_make_no_sense_are_refused(line: str) -> None:
    with pytest.raises(UsageError):
        parse_lines(line, "t")


def test_a_line_is_read_as_it_was_written() -> None:
    for each in (token("s"), token("s", quota_bytes=3 << 40), token("s", quota_bytes=7, until_s=1234567890.0)):
        assert parse_lines(written(each), "t") == [each]
    assert time_text(0) == "1970-01-01T00:00:00Z"


def test_a_token_is_added_and_all_else_stays(path: Path) -> None:
    path.write_text(TEXT.rstrip("\n"))
    TokenFile(str(path)).add(token("third"))
    assert path.read_text() == TEXT.rstrip("\n") + "\nthird carol\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("bad", [token("secret"), token("new", "alice", quota_bytes=5)])
def test_a_token_that_would_spoil_the_file_is_refused(path: Path, bad: Token) -> None:
    with pytest.raises(UsageError):
        TokenFile(str(path)).add(bad)
    assert path.read_text() == TEXT


def test_a_token_is_removed_by_the_beginning_of_its_id(path: Path) -> None:
    file = TokenFile(str(path))
    other = file.tokens()[1]
    assert file.remove(other.ident[:6]) == other
    assert path.read_text() == "# of the house\nsecret alice 1MiB\n\n"
    with pytest.raises(UsageError, match="the only token"):
        file.remove(file.tokens()[0].ident)


def test_root_is_led_nowhere_in_the_folder_of_somebody_else(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when root writes, or gives away, what a server's user has put under a name that root will use."""
    victim = tmp_path / "victim"
    victim.write_text("of root")
    os.chown(path, 65534, 65533)
    after = os.rename

    def rename(source: str, target: str, **folders: int) -> None:
        after(source, target, **folders)
        path.unlink()
        path.symlink_to(victim)  # in time for whoever would go on by the name

    (tmp_path / "tokens.tmp").symlink_to(victim)
    TokenFile(str(path)).add(token("third"))
    assert (path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) == (65534, 65533, 0o640)
    monkeypatch.setattr(os, "rename", rename)
    TokenFile(str(path)).add(token("fourth"))
    assert (victim.read_text(), victim.stat().st_uid) == ("of root", os.geteuid())
    assert sorted(os.listdir(tmp_path)) == ["tokens", "tokens.tmp", "victim"]


def test_what_is_not_there_can_not_be_removed(path: Path, tmp_path: Path) -> None:
    for ident in ("", "zzzz", "secret"):
        with pytest.raises(NotFoundError):
            TokenFile(str(path)).remove(ident)
    for missing in (tmp_path / "none", tmp_path / "no" / "folder"):
        with pytest.raises(NotFoundError):
            TokenFile(str(missing)).add(token("x"))
    assert path.read_text() == TEXT


def test_an_id_and_a_text_tell_nothing_of_the_token() -> None:
    made = token("very-secret")
    assert "very" not in made.ident
    assert "very" not in repr(made)


def test_a_change_is_told_once_and_when_it_rests(path: Path) -> None:
    watched = WatchedTokens(str(path))
    assert not watched.has_changed()
    path.write_text("a b\n")
    assert [watched.has_changed() for _ in range(4)] == [False, True, False, False]
    os.unlink(path)
    assert [watched.has_changed() for _ in range(3)] == [False, False, False]
    path.write_text("a b\nc d\n")
    assert [watched.has_changed() for _ in range(3)] == [False, True, False]
