"""The key of a share: which keys count, what is taken from a server, and what is not."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.errors import UsageError
from syncer.peer import sharekey
from syncer.peer.session.keyring import RootKey
from syncer.peer.sharekey import BadKey, Kept, StoredKey
from tests import effort

DAY = 24 * 3600
NOW = 1_790_000_000
NEW, OLD, OTHER = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
NONE = Kept(share="s")


def stored(generation: int = 1, key: bytes = NEW, old: bytes | None = None, made_s: int = NOW) -> StoredKey:
    return StoredKey(generation=generation, made_s=made_s, key=key, old=old)


def kept(found: StoredKey, now_s: int = NOW) -> Kept:
    return sharekey.accepted(NONE, found, "v", now_s)


KEYS = st.binary(min_size=32, max_size=32)
STORED = st.builds(
    StoredKey, generation=st.integers(1, 1 << 40), made_s=st.integers(0, 1 << 39), key=KEYS, old=st.none() | KEYS
).filter(lambda one: one.key != one.old)


@settings(max_examples=effort.count("properties"))
@given(STORED)
def test_what_is_written_is_read_again(one: StoredKey) -> None:
    assert sharekey.decode(sharekey.encode(one)) == one
    device = kept(one)
    assert sharekey.decode_kept(sharekey.encode_kept(device)) == device


@settings(max_examples=effort.count("properties"))
@given(st.binary(max_size=300) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(msgspec.json.encode))
def test_hostile_bytes_are_no_key_and_no_error(raw: bytes) -> None:
    assert isinstance(sharekey.decode(raw), BadKey)
    sharekey.decode_kept(raw)


@pytest.mark.parametrize(
    "changed",
    [
        {"generation": 0},
        {"generation": 1 << 60},
        {"made_s": -1},
        {"key": "00"},
        {"key": "x" * 64},
        {"old": "00"},
        {"old": NEW.hex()},
        {"key": None},
        {"format": 0},
        {"format": "1"},
    ],
)
def test_a_malformed_object_is_none(changed: dict[str, Any]) -> None:
    record = json.loads(sharekey.encode(stored(2, old=OLD)))
    assert sharekey.decode(json.dumps({**record, **changed}).encode()) == BadKey(reason="is malformed")


def test_an_object_of_a_newer_format_is_said_to_be_so() -> None:
    found = sharekey.decode(b'{"format": 2, "something": "else"}')
    assert isinstance(found, BadKey)
    assert "format 2" in found.reason
    assert sharekey.decode_kept(b'{"format": 2}') == 2


def test_a_huge_object_is_not_read() -> None:
    assert isinstance(sharekey.decode(b" " * 5000 + sharekey.encode(stored())), BadKey)


def test_the_golden_object_stays_readable() -> None:
    """Format 1, as the first version wrote it: other devices have such objects for ever."""
    raw = b'{"format":1,"generation":2,"made_s":1790000000,"key":"' + b"01" * 32 + b'","old":"' + b"02" * 32 + b'"}\n'
    assert sharekey.decode(raw) == stored(2, old=OLD)
    assert sharekey.encode(stored(2, old=OLD)) == raw


def test_the_old_key_counts_for_a_day() -> None:
    device = kept(stored(2, old=OLD))
    new, old = RootKey(raw=NEW), RootKey(raw=OLD, until_unix_s=NOW + DAY)
    assert sharekey.keys_now(device, NOW) == (new, old)
    assert sharekey.keys_now(device, NOW + DAY - 1) == (new, old)
    assert sharekey.keys_now(device, NOW + DAY) == (new,)


def test_a_clock_that_is_ahead_does_not_prolong_an_old_key() -> None:
    device = kept(stored(2, old=OLD, made_s=NOW + 365 * DAY))
    assert len(sharekey.keys_now(device, NOW + DAY)) == 1
    again = sharekey.accepted(device, stored(2, old=OLD, made_s=NOW + 365 * DAY), "v2", NOW + DAY)
    assert len(sharekey.keys_now(again, NOW + DAY)) == 1


def test_a_key_is_due_after_thirty_days() -> None:
    device = kept(stored())
    assert not sharekey.is_due(device, NOW + 30 * DAY - 1)
    assert sharekey.is_due(device, NOW + 30 * DAY)


def test_a_rotation_keeps_the_old_key_and_counts_on() -> None:
    device = kept(stored(4, old=OLD))
    following = sharekey.rotated(device, OTHER, NOW + 30 * DAY)
    assert following == stored(5, OTHER, NEW, NOW + 30 * DAY)
    assert [key.raw for key in sharekey.keys_now(kept(following, NOW + 30 * DAY), NOW + 30 * DAY)] == [OTHER, NEW]


def test_an_older_generation_turns_the_lan_off_until_a_rotation() -> None:
    device = kept(stored(5))
    back = sharekey.accepted(device, stored(4, OLD), "v", NOW)
    assert back.off
    assert sharekey.keys_now(back, NOW) == ()
    assert back.highest == 5
    following = sharekey.rotated(back, OTHER, NOW)
    assert (following.generation, following.old) == (6, None)
    assert sharekey.keys_now(sharekey.accepted(back, following, "v", NOW), NOW) == (RootKey(raw=OTHER),)


def test_a_generation_that_nobody_can_have_come_to_ends_no_rotations() -> None:
    """Who may write to the share writes the highest one there is: else no device could ever go above it."""
    highest = 1 << 48
    assert sharekey.decode(sharekey.encode(stored(highest))) == stored(highest)
    for device in (kept(stored(5)), Kept(share="s")):
        off = sharekey.accepted(device, stored(highest, OTHER), "v", NOW)
        assert f"generation {highest}" in off.off
        assert sharekey.keys_now(off, NOW) == ()
        following = sharekey.rotated(off, OLD, NOW)
        assert sharekey.decode(sharekey.encode(following)) == following
        assert sharekey.keys_now(sharekey.accepted(device, following, "w", NOW), NOW) == (RootKey(raw=OLD),)
    missed = sharekey.accepted(kept(stored(5)), stored(5 + (1 << 20)), "v", NOW)
    assert not missed.off


def test_the_same_generation_after_a_rollback_is_taken_again() -> None:
    device = kept(stored(5))
    back = sharekey.accepted(device, stored(4, OLD), "v", NOW)
    assert sharekey.keys_now(sharekey.accepted(back, stored(5), "w", NOW), NOW) == (RootKey(raw=NEW),)


def test_another_key_of_the_same_generation_is_taken() -> None:
    """Two devices made one at once, on a server that lets both."""
    device = sharekey.accepted(kept(stored()), stored(1, OTHER), "w", NOW)
    assert sharekey.keys_now(device, NOW) == (RootKey(raw=OTHER),)


def test_a_malformed_object_turns_the_lan_off_and_a_good_one_on() -> None:
    device = sharekey.accepted(kept(stored()), BadKey(reason="is malformed"), "w", NOW)
    assert sharekey.keys_now(device, NOW) == ()
    assert "malformed" in device.off
    assert sharekey.keys_now(sharekey.accepted(device, stored(2), "x", NOW), NOW)


def test_a_key_that_is_gone_turns_the_lan_off_and_one_that_never_was_does_not() -> None:
    assert sharekey.gone(kept(stored()), NOW).off
    assert not sharekey.gone(NONE, NOW).off


def test_what_was_in_vain_is_tried_again_a_day_later() -> None:
    assert sharekey.may_try(NONE, NOW)
    device = sharekey.refused(NONE, "the server does not let us", NOW)
    assert not sharekey.may_try(device, NOW + DAY - 1)
    assert sharekey.may_try(device, NOW + DAY)
    assert sharekey.may_try(device, NOW - 1)  # the clock was put back


def test_a_key_of_a_passphrase_stays_the_same_for_ever() -> None:
    """Devices of all releases must make the same one."""
    device = sharekey.from_passphrase(NONE, "correct horse", "anna", "docs", "", NOW)
    (key,) = sharekey.keys_now(device, NOW)
    assert key.raw.hex() == "07a93f9f4d38dc04471d4321fe7437ca000ee7db3bebd4cbb1f460bcf6732ecf"


def test_a_passphrase_makes_one_key_for_one_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharekey, "_SCRYPT_N", 4)  # the real one takes half a second each

    def made(phrase: str = "correct horse", *place: str) -> bytes:
        account, container, prefix = place or ("anna", "docs", "")
        return sharekey.keys_now(sharekey.from_passphrase(NONE, phrase, account, container, prefix, NOW), NOW)[0].raw

    assert made() == made(" correct horse\n")
    assert made("Grüße an alle") == made("Gru\N{COMBINING DIAERESIS}ße an alle")  # as other keyboards put it together
    others = [
        made("correct horsf"),
        made("correct horse", "ann", "adocs", ""),
        made("correct horse", "anna", "docs", "a"),
    ]
    assert len({made(), *others}) == 4
    device = sharekey.from_passphrase(NONE, "correct horse", "anna", "docs", "", NOW)
    assert not sharekey.is_due(device, NOW + 365 * DAY)


def test_a_short_passphrase_is_refused() -> None:
    """A recorded frame lets anybody try passphrases without asking a device."""
    with pytest.raises(UsageError, match="at least 12 characters, this one has 11"):
        sharekey.from_passphrase(NONE, " elevenchars ", "anna", "docs", "", NOW)


def test_a_mark_tells_keys_apart_and_is_no_part_of_them() -> None:
    assert sharekey.mark_of(NEW) == sharekey.mark_of(NEW) != sharekey.mark_of(OLD)
    assert len(sharekey.mark_of(NEW)) == 8
    assert sharekey.mark_of(NEW) not in NEW.hex()


def test_no_key_is_shown() -> None:
    device = kept(stored(2, old=OLD))
    assert NEW.hex() not in repr(device)
    assert "\\x01\\x01" not in repr(device)
