"""Keys: derived one from the other, wrapped by passphrases, and never unbounded work."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncer.errors import AuthError, DamagedObjectError, FormatTooNewError, UsageError
from syncer.remote.repository.format.keys import Content, Keys, MasterKey, derive, object_key
from syncer.remote.repository.format.recovery import recovery_key, typed_key
from syncer.remote.repository.format.slots import (
    MAX_SLOTS,
    Secret,
    Slot,
    new_slot,
    open_any,
    open_slot,
    read_slot,
)

MASTER = MasterKey(bytes(range(32)))
REPOSITORY = bytes(range(100, 116))
PASSPHRASE = "correct horse battery"
SALT = bytes(range(16))
LABEL_AT = 49


def made(passphrase: str = PASSPHRASE, *, salt: bytes = SALT, secret: Secret = Secret.PASSPHRASE) -> tuple[str, bytes]:
    return new_slot(MASTER, REPOSITORY, passphrase, salt, made_s=1790000000, label="laptop", secret=secret, log2_n=10)


def slot_of(passphrase: str = PASSPHRASE, **more: object) -> Slot:
    return read_slot(*made(passphrase, **more))  # type: ignore[arg-type]


def secrets(keys: Keys) -> set[bytes]:
    return {keys.seal, keys.content, keys.tree, keys.split, keys.lan, keys.cut_seed.to_bytes(8, "big")}


class TestDerivation:
    def test_each_use_has_a_key_of_its_own(self) -> None:
        keys = derive(MASTER, REPOSITORY)
        assert len(secrets(keys)) == 6
        assert not secrets(keys) & secrets(derive(MASTER, bytes(16)))
        assert not secrets(keys) & secrets(derive(MasterKey(bytes(32)), REPOSITORY))
        assert MASTER not in secrets(keys)

    def test_keys_are_what_they_were(self) -> None:
        """Breaks when another release would derive other keys: it could open nothing."""
        keys = derive(MASTER, REPOSITORY)
        assert keys.chunk_id(Content.FILES, b"chunk").hex() == FILES_ID
        assert keys.chunk_id(Content.TREES, b"chunk").hex() == TREES_ID
        assert keys.cut_seed == CUT_SEED
        assert object_key(keys, SALT, b"p").hex() == OBJECT_KEY

    def test_an_object_has_a_key_of_its_own(self) -> None:
        keys = derive(MASTER, REPOSITORY)
        made = {object_key(keys, salt, kind) for salt in (SALT, bytes(16)) for kind in (b"p", b"i")}
        assert len(made) == 4

    def test_no_key_is_shown(self) -> None:
        keys = derive(MASTER, REPOSITORY)
        assert repr(keys) == f"Keys(repository={REPOSITORY.hex()})"


class TestSlots:
    def test_a_slot_gives_the_master_key_to_its_passphrase_alone(self) -> None:
        slot = slot_of()
        assert open_slot(slot, PASSPHRASE) == MASTER
        assert open_slot(slot, PASSPHRASE + "!") is None

    def test_spaces_around_and_how_accents_are_put_together_do_not_count(self) -> None:
        assert open_slot(slot_of("ca\u0301rvalho alto 7"), "  c\u00e1rvalho alto 7\n") == MASTER

    def test_what_people_see_of_it_needs_no_passphrase(self) -> None:
        slot = slot_of()
        assert (slot.label, slot.made_s, slot.secret) == ("laptop", 1790000000, Secret.PASSPHRASE)

    def test_damage_is_told_from_a_wrong_passphrase(self) -> None:
        name, raw = made()
        for at in range(len(raw)):
            damaged = bytearray(raw)
            damaged[at] ^= 0x40
            with pytest.raises((DamagedObjectError, FormatTooNewError), match=r"keys/|format"):
                read_slot(name, bytes(damaged))
        with pytest.raises(DamagedObjectError, match=name):
            read_slot(name, raw[:-1])

    def test_a_slot_that_the_store_made_up_does_not_open(self) -> None:
        """Its name may be right: anybody can hash. What it says is bound to the wrapping."""
        name, raw = made()
        slot = read_slot(name, raw)
        for at in (6, 8, 24, 40, LABEL_AT):
            bound = bytearray(slot.bound)
            bound[at] ^= 1
            forged = Slot(**{field: getattr(slot, field) for field in slot.__struct_fields__} | {"bound": bytes(bound)})
            assert open_slot(forged, PASSPHRASE) is None

    @pytest.mark.parametrize("log2_n", [0, 9, 19, 20, 63, 255])
    def test_no_slot_makes_us_work_without_bound(self, log2_n: int) -> None:
        raw = bytearray(made()[1])
        raw[7] = log2_n
        with pytest.raises(DamagedObjectError, match="malformed"):
            read_slot(name_of(bytes(raw)), bytes(raw))

    def test_many_hostile_slots_cost_no_more_than_some(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried: list[str] = []

        def refuse(slot: Slot, passphrase: str) -> None:
            tried.append(slot.name)

        monkeypatch.setattr("syncer.remote.repository.format.slots.open_slot", refuse)
        with pytest.raises(AuthError):
            open_any([slot_of()] * 5000, REPOSITORY, PASSPHRASE)
        assert len(tried) == MAX_SLOTS

    def test_a_newer_format_is_left_alone(self) -> None:
        raw = bytearray(made()[1])
        raw[5] = 2
        with pytest.raises(DamagedObjectError):  # a byte of a slot of ours was flipped
            read_slot("keys/0011223344556677", bytes(raw))
        with pytest.raises(FormatTooNewError):
            read_slot(f"keys/{hashlib.sha256(raw).hexdigest()[:16]}", bytes(raw))

    def test_any_of_several_keys_opens_and_a_wrong_passphrase_is_told(self) -> None:
        slots = [slot_of(), slot_of("another passphrase", salt=bytes(16))]
        for passphrase, expected in ((PASSPHRASE, slots[0]), ("another passphrase", slots[1])):
            assert open_any(slots, REPOSITORY, passphrase) == (MASTER, expected)
        with pytest.raises(AuthError, match="wrong passphrase"):
            open_any(slots, REPOSITORY, "yet another one")

    def test_slots_of_another_repository_are_not_tried(self) -> None:
        with pytest.raises(AuthError, match="no key slot"):
            open_any([slot_of()], bytes(16), PASSPHRASE)

    def test_short_passphrases_and_long_labels_are_refused(self) -> None:
        with pytest.raises(UsageError, match="12 characters"):
            made("short")
        with pytest.raises(UsageError, match="label"):
            new_slot(MASTER, REPOSITORY, PASSPHRASE, SALT, made_s=0, label="é" * 33, log2_n=10)


class TestRecoveryKeys:
    def test_a_recovery_key_opens_its_slot_however_it_is_typed(self) -> None:
        key = recovery_key(bytes(range(20)))
        slot = slot_of(key, secret=Secret.RECOVERY_KEY)
        assert open_slot(slot, key.lower().replace("-", " ").replace("0", "o")) == MASTER

    def test_a_recovery_key_is_what_it_was(self) -> None:
        assert recovery_key(bytes(range(20))) == RECOVERY

    @given(st.binary(min_size=20, max_size=20), st.data())
    @example(bytes(20), None)
    def test_a_wrong_letter_is_noticed(self, random: bytes, data: st.DataObject | None) -> None:
        key = recovery_key(random)
        assert typed_key(key) == key
        at = 0 if data is None else data.draw(st.sampled_from([n for n, letter in enumerate(key) if letter != "-"]))
        other = "7" if data is None else data.draw(st.sampled_from("0123456789ABCDEFGHJKMNPQRSTVWXYZ"))
        if key[at] != other:
            with pytest.raises(UsageError, match="mistyped"):
                typed_key(key[:at] + other + key[at + 1 :])

    @pytest.mark.parametrize("text", ["", PASSPHRASE, "a" * 36, "-" * 44, "u" * 36])
    def test_other_passphrases_are_no_recovery_keys(self, text: str) -> None:
        assert typed_key(text) is None


def name_of(raw: bytes) -> str:
    return "keys/" + hashlib.sha256(raw).digest()[:8].hex()


FILES_ID = "b0c8a3380cdf40bde46ed98a7031a7231c413fd17c0dd723fb35a3f750824e1a"
TREES_ID = "f4093b97592bf11a81f2a51b018b1a9ef541ed9ea767ad313672abf81c74c893"
CUT_SEED = 203998382865161
OBJECT_KEY = "ceafccbf27752da99eeebe9ee33ed856ff91582ff922e462b3334eacfb1953e5"
RECOVERY = "000G-40R4-0M30-E209-185G-R38E-1W81-24GK-PEY2"
