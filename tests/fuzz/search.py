"""A search for bytes that a reader can't bear: it changes what it has, and keeps what reaches new code.

`search` runs a target on changed copies of its seeds. With `guided`, the lines that the code under test goes through
are watched (sys.settrace), and an input that takes a step from one line to another that none took before joins the
seeds. So conditions that chance alone would hardly meet one after the other are met one at a time.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import msgspec

_BYTES: Final = (0, 1, 2, 3, 7, 8, 9, 16, 17, 63, 64, 65, 127, 128, 179, 180, 254, 255)
_WORDS: Final = (0, 1, 8, 179, 180, 512, 513, 1440, 32_000, 32_001, 65_535)
_LONG_WORDS: Final = (0, 1, 16, 17, 262_139, 262_144, 262_160, 262_161, (1 << 31) - 1, (1 << 32) - 1)
_MAX_CHANGES: Final = 4
_MAX_BYTES: Final = 4096  # longer inputs are slower and find nothing more


class Target(msgspec.Struct, frozen=True):
    """What is searched.

    Attributes:
        name: In a failure.
        seeds: Valid inputs.
        read: Reads bytes; raises, whatever it is, when it finds that something does not hold.
        watched: Which modules are the code under test: the path of their files contains this.
        weight: Of its inputs, among targets that share some.
    """

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], None]
    watched: str = "syncer/peer/"
    weight: int = 1


@dataclass(slots=True)
class Found:
    """What a search has been through.

    Attributes:
        inputs: How many.
        steps: From line to line, in the watched files. Guided searches only.
        corpus: The seeds, and what joined them.
    """

    inputs: int = 0
    steps: set[tuple[str, int, int]] = field(default_factory=set)
    corpus: list[bytes] = field(default_factory=list)


def share(target: Target, targets: Sequence[Target], inputs: int) -> int:
    """How many of so many inputs for some targets are for one of them, at least one."""
    return math.ceil(inputs * target.weight / sum(each.weight for each in targets))


def search(target: Target, inputs: int, seed: int, *, guided: bool = False) -> Found:
    """Run a target on so many inputs. The same seed makes the same inputs.

    Raises:
        AssertionError: One was not borne; it is named.
    """
    rng = random.Random(seed)
    found = Found(corpus=[*target.seeds])
    for _ in range(inputs):
        data = _changed(rng, found.corpus)
        found.inputs += 1
        try:
            if guided:
                _watched(target, data, found)
            else:
                target.read(data)
        except Exception as error:
            raise AssertionError(f"{target.name}, seed {seed}: {data.hex()}: {error!r}") from error
    return found


def _watched(target: Target, data: bytes, found: Found) -> None:
    before = len(found.steps)
    with _tracing(target.watched, found.steps):
        target.read(data)
    if len(found.steps) > before:
        found.corpus.append(data)


@contextmanager
def _tracing(watched: str, steps: set[tuple[str, int, int]]) -> Iterator[None]:
    """Collect the steps of all code in watched files, and give a tracer that was there (of coverage) its place back."""

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if watched not in path:
            return None
        last = 0

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            steps.add((path, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line

    tracer = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(tracer)


def _changed(rng: random.Random, corpus: list[bytes]) -> bytes:
    """A changed copy of something in the corpus, or, once in 32 times, random bytes."""
    if rng.random() < 1 / 32:
        return rng.randbytes(_below(rng, 200))
    data = bytearray(corpus[_below(rng, len(corpus))])
    for _ in range(1 + _below(rng, _MAX_CHANGES)):
        _CHANGES[_below(rng, len(_CHANGES))](rng, data, corpus)
    return bytes(data[:_MAX_BYTES])


def _flip(rng: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    if data:
        data[_below(rng, len(data))] ^= 1 << _below(rng, 8)


def _set(rng: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    if data:
        data[_below(rng, len(data))] = rng.choice(_BYTES) if rng.random() < 0.5 else _below(rng, 256)


def _word(rng: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    size, words = (2, _WORDS) if rng.random() < 0.5 else (4, _LONG_WORDS)
    at = _below(rng, len(data) + 1)
    data[at : at + size] = rng.choice(words).to_bytes(size, "big")


def _cut(rng: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    at = _below(rng, len(data) + 1)
    del data[at : at + 1 + _below(rng, 16)]


def _end(rng: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    del data[_below(rng, len(data) + 1) :]


def _insert(rng: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    at = _below(rng, len(data) + 1)
    data[at:at] = rng.randbytes(1 + _below(rng, 16)) if rng.random() < 0.5 else bytes(1 + _below(rng, 64))


def _repeat(rng: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    at = _below(rng, len(data) + 1)
    data[at:at] = data[at : at + 1 + _below(rng, 64)]


def _splice(rng: random.Random, data: bytearray, corpus: list[bytes]) -> None:
    other = corpus[_below(rng, len(corpus))]
    at = _below(rng, min(len(data), len(other)) + 1)
    data[at:] = other[at:]


def _below(rng: random.Random, limit: int) -> int:
    return int(rng.random() * limit)  # a third of the time of randrange, and good enough here


_CHANGES: Final = (_flip, _set, _set, _word, _cut, _end, _insert, _repeat, _splice)
