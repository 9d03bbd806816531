"""The page that walks a newcomer through the rooms names the modules that are really entered, in their order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.walk import TO_THE_SOCKET, journeys

PAGE = Path(__file__).parents[2] / "docs/design/walk.md"
TITLES = {"write": "A write", "seal": "A seal", "push": "A push", "pull": "A pull"}
BOOKING = {"syncer.engine.record", "syncer.local.folder.root", "syncer.local.folder.changes"}  # ends before it is sent
NOT_WALKED = {"peer/exchange/source"}  # nobody else is on the network of a test


def modules_on_the_page(title: str) -> list[str]:
    section = PAGE.read_text().partition(f". {title}\n")[2].partition("\n## ")[0]
    found: list[str] = []
    for cell in re.findall(r"^\| \w+ \| (`[^|]*) \|", section, re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([\w/]+)`", cell):
            place = name if "/" in name else f"{folder}/{name}"
            folder = place.rpartition("/")[0]
            found.append(place)
    return found


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return journeys(tmp_path_factory.mktemp("walk"))


@pytest.mark.parametrize("journey", TITLES)
def test_the_page_names_only_what_is_entered(walked: dict[str, list[str]], journey: str) -> None:
    entered = {name.partition(".")[2].replace(".", "/") for name in walked[journey]}
    named = modules_on_the_page(TITLES[journey])
    assert len(named) >= 8
    assert {*named} - NOT_WALKED <= entered


def test_a_new_file_is_pushed_through_seven_modules_from_the_decision_to_the_socket(
    walked: dict[str, list[str]],
) -> None:
    """Breaks when a step is put between that only hands on what it is given."""
    on_the_way = [name for name in walked[TO_THE_SOCKET] if name not in BOOKING]
    assert 4 <= len(on_the_way) <= 7, on_the_way
    assert walked[TO_THE_SOCKET][0] == "syncer.engine.push"
    assert walked[TO_THE_SOCKET][-1] == "syncer.remote.http.transport"
