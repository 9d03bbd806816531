"""The whole of config.toml: text in, settings out; who reads the file is `config.py`. Pure.

What can't be understood is an error that names the key: a limit with a typing error in its name would be no limit.

Source: docs/reference/config.md, which a test compares with the fields here.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

import msgspec

from syncer.errors import UsageError
from syncer.peer import settings as peer_settings
from syncer.peer.settings import CHOICES, Peers
from syncer.watch.notices import events
from syncer.watch.notices.events import Notify
from syncer.watch.page import places
from syncer.watch.page.places import Metrics

PAGE: Final = "docs/reference/config.md"
_PLACE: Final = re.compile(r"^(?P<said>.*?)(?: - at `\$\.(?P<place>.*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"unknown field `(?P<name>[^`]*)`")

_TYPES: Final = re.compile(r"`(\w+)`")
_WORDS: Final = {
    "int": "an integer",
    "str": "a string",
    "bool": "true or false",
    "object": "a table",
    "array": "an array",
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    peers: Peers = Peers()
    notify: Notify = Notify()
    metrics: Metrics = Metrics()


def parse(text: str, file: str) -> Settings:
    """Read a config.toml.

    Args:
        text: Its content; empty: all as it is by default.
        file: Its name, for messages.

    Raises:
        UsageError: No TOML, an unknown key, a value of the wrong type or out of range; names the file and the key.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}; correct that line or remove it") from None
    try:
        settings = msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        said, place = _located(str(error))
        raise _wrong(file, place, said) from None
    found = {
        "peers": peer_settings.objection(settings.peers),
        "notify": events.objection(settings.notify),
        "metrics": places.objection(settings.metrics),
    }
    for name, objection in found.items():
        if objection is not None:
            key, said = objection
            raise _wrong(file, f"{name}.{key}", said)
    return settings


def _located(message: str) -> tuple[str, str]:
    """What msgspec says, in the words of TOML, and the key that it is about."""
    match = _PLACE.match(message)
    assert match is not None
    place = match["place"] or ""
    unknown = _UNKNOWN.search(match["said"])
    if unknown:
        return "there is no such key", f"{place}.{unknown['name']}".lstrip(".")
    key = place.removeprefix("peers.").partition("[")[0]
    if key in CHOICES and match["said"].startswith("Invalid enum"):
        return f"expected one of {', '.join(CHOICES[key])}", place
    words = _TYPES.sub(lambda found: _WORDS.get(found[1], found[1]), match["said"])
    return words[:1].lower() + words[1:], place


def _wrong(file: str, place: str, said: str) -> UsageError:
    return UsageError(f"{file}: {place}: {said}; correct that key or remove it, {PAGE} has all of them")
