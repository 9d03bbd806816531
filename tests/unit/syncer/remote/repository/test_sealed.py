"""Sealed objects: opened as they were sealed, or named as damaged."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.errors import DamagedObjectError, FormatTooNewError
from syncer.remote.repository.format import config
from syncer.remote.repository.format.codec import BadMessage, Codec
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.keys import MasterKey, derive
from syncer.remote.repository.format.padding import padded
from syncer.remote.repository.format.sealed import (
    Envelope,
    Kind,
    digest_of,
    object_name,
    open_whole,
    seal_whole,
)

KEYS = derive(MasterKey(bytes(range(32))), bytes(range(16)))
OTHERS = derive(MasterKey(bytes(32)), bytes(range(16)))
SALT = bytes(range(50, 66))
CODEC = Codec()
DEVICE = b"d" * 16
CONFIG = Config(grid=65536, chunks=(4096, 16384, 65536), made_s=1790000000)


def head(body: bytes = b"body") -> bytes:
    return seal_whole(KEYS, Kind.HEAD, SALT, body, CODEC, DEVICE)


def opened(raw: bytes, *, keys: object = KEYS, kind: Kind = Kind.HEAD, bound: bytes = DEVICE) -> bytes:
    return open_whole(keys, kind, "heads/x", raw, CODEC, bound)  # type: ignore[arg-type]


@given(st.binary(max_size=2000), st.sampled_from(list(Kind)))
def test_what_was_sealed_is_opened(body: bytes, kind: Kind) -> None:
    raw = seal_whole(KEYS, kind, SALT, body, CODEC)
    digest = hashlib.sha256(raw).digest()
    name = object_name(kind, digest) if kind.is_named_by_content else "any"
    assert open_whole(KEYS, kind, name, raw, CODEC) == body
    assert not kind.is_named_by_content or digest_of(kind, name) == digest


def test_every_flipped_bit_is_noticed_and_the_object_named() -> None:
    raw = head()
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << at % 8
        with pytest.raises((DamagedObjectError, FormatTooNewError), match="heads/x"):
            opened(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    raw = head()
    for length in range(len(raw)):
        with pytest.raises(DamagedObjectError, match="heads/x"):
            opened(raw[:length])
    with pytest.raises(DamagedObjectError):
        opened(raw + b"\0")


def test_an_object_opens_only_as_what_it_is() -> None:
    """Another repository's, another kind, another device's head under this name: none opens."""
    assert opened(head()) == b"body"
    for more in ({"keys": OTHERS}, {"kind": Kind.CONFIG}, {"bound": b"e" * 16}):
        with pytest.raises(DamagedObjectError):
            opened(head(), **more)  # type: ignore[arg-type]


def test_an_object_under_another_name_is_noticed() -> None:
    raw = seal_whole(KEYS, Kind.INDEX, SALT, b"body", CODEC)
    with pytest.raises(DamagedObjectError, match="do not have this name"):
        open_whole(KEYS, Kind.INDEX, object_name(Kind.INDEX, bytes(32)), raw, CODEC)


def test_a_newer_version_is_left_alone() -> None:
    raw = bytearray(head())
    raw[5] = 2
    with pytest.raises(FormatTooNewError, match="heads/x"):
        opened(bytes(raw))


def test_a_message_opens_only_where_it_was_sealed() -> None:
    envelope = Envelope(KEYS, Kind.PACK, SALT, b"\1")
    message = envelope.seal(24, b"e", b"chunk")
    assert envelope.open(24, b"e", message) == b"chunk"
    assert envelope.open(25, b"e", message) is None
    assert envelope.open(24, b"t", message) is None
    assert Envelope(KEYS, Kind.PACK, SALT, b"\2").open(24, b"e", message) is None


def test_more_than_the_limit_does_not_come_out() -> None:
    raw = head(bytes(10_000))
    assert len(raw) == 256
    with pytest.raises(DamagedObjectError, match="where 9999 are expected"):
        open_whole(KEYS, Kind.HEAD, "heads/x", raw, CODEC, DEVICE, limit=9999)


class TestCodec:
    @given(st.one_of(st.binary(max_size=200), st.integers(1, 5000).map(lambda n: b"ab" * n)))
    def test_a_message_gives_its_bytes_back(self, data: bytes) -> None:
        assert CODEC.decode(CODEC.encode(data), len(data), exact=True) == data
        assert CODEC.decode(CODEC.encode(memoryview(data)), len(data) + 9) == data

    def test_what_does_not_shrink_is_kept_as_it_is(self) -> None:
        assert CODEC.encode(SALT) == b"\0" + SALT
        assert CODEC.encode(bytes(4096))[:1] == b"\1"

    @pytest.mark.parametrize("data", [SALT, bytes(4096)])
    def test_another_length_than_expected_is_refused(self, data: bytes) -> None:
        for limit in (len(data) - 1, len(data) + 1):
            with pytest.raises(BadMessage):
                CODEC.decode(CODEC.encode(data), limit, exact=True)

    @pytest.mark.parametrize("message", [b"", b"\2abc", b"\1", b"\1garbage", CODEC.encode(bytes(4096))[:-1]])
    def test_other_bytes_are_refused(self, message: bytes) -> None:
        with pytest.raises(BadMessage):
            CODEC.decode(message, 4096)


class TestPadding:
    @given(st.integers(0, 1 << 40))
    def test_it_costs_an_eighth_at_most_and_keeps_few_lengths_apart(self, length: int) -> None:
        long = padded(length)
        assert length <= long <= max(256, length + length // 8)
        assert padded(long) == long
        assert long <= 256 or long.bit_count() <= long.bit_length().bit_length() + 1

    @given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
    def test_longer_stays_longer(self, one: int, two: int) -> None:
        assert padded(min(one, two)) <= padded(max(one, two))


class TestConfig:
    raw = config.encode(KEYS, SALT, CONFIG, CODEC)

    def test_it_is_read_as_it_was_written(self) -> None:
        assert config.repository_of(self.raw) == KEYS.repository
        assert config.decode(KEYS, self.raw, CODEC) == CONFIG
        assert len(self.raw) == 280

    def test_another_key_is_told(self) -> None:
        with pytest.raises(DamagedObjectError, match="not made with this repository's key"):
            config.decode(OTHERS, self.raw, CODEC)
        with pytest.raises(DamagedObjectError, match="another repository"):
            config.decode(derive(MasterKey(bytes(32)), bytes(16)), self.raw, CODEC)

    def test_every_flipped_bit_is_noticed(self) -> None:
        for at in range(len(self.raw)):
            damaged = bytearray(self.raw)
            damaged[at] ^= 1 << at % 8
            with pytest.raises((DamagedObjectError, FormatTooNewError)):
                config.decode(KEYS, bytes(damaged), CODEC)

    def test_a_newer_repository_is_left_alone(self) -> None:
        raw = bytearray(self.raw)
        raw[5] = 2
        with pytest.raises(FormatTooNewError, match="the repository has format 2"):
            config.repository_of(bytes(raw))

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"[]",
            b'{"grid":65536,"chunks":[4096,16384,65536],"made_s":-1}',
            b'{"grid":65537,"chunks":[4096,16384,65536],"made_s":1}',
            b'{"grid":65536,"chunks":[0,16384,65536],"made_s":1}',
            b'{"grid":65536,"chunks":[4096,4096,65536],"made_s":1}',
            b'{"grid":65536,"chunks":[64,128,1024],"made_s":1}',
            b'{"grid":65536,"chunks":[4096,16384,524288],"made_s":1}',
            b'{"grid":65536,"chunks":[4096,16384,65536],"made_s":1,"more":2}',
        ],
    )
    def test_values_that_make_no_sense_are_refused(self, body: bytes) -> None:
        sealed = seal_whole(KEYS, Kind.CONFIG, SALT, body, CODEC)
        with pytest.raises(DamagedObjectError, match="malformed"):
            config.decode(KEYS, self.raw[:24] + sealed, CODEC)
