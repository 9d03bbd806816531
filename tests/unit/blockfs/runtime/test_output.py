"""What commands print can't do anything to a terminal, whatever files are called."""

from __future__ import annotations

import pytest

from blockfs.runtime.output import note, printable, table, tell

_EVIL = "a\x1b]0;owned\x07\x9b2Jb\x7fc\td\re"
_SEEN = r"a\x1b]0;owned\x07\x9b2Jb\x7fc\x09d\x0de"


def test_control_characters_are_shown_and_not_sent() -> None:
    assert printable(_EVIL) == _SEEN
    assert printable("ünïcode 漢字") == "ünïcode 漢字"


def test_a_name_does_not_turn_the_line_that_it_is_in() -> None:
    """Else an `.exe` from another device reads as a PDF."""
    assert printable("invoice\u202efdp.exe") == r"invoice\u202efdp.exe"
    assert printable("שלום") == "שלום"


def test_a_name_with_a_newline_stays_within_its_line() -> None:
    """Else what follows the newline looks like a message of ours."""
    assert printable("evil\nblocksync: all is well") == r"evil\x0ablocksync: all is well"


def test_everything_printed_goes_through_it(capsys: pytest.CaptureFixture[str]) -> None:
    note(_EVIL)
    tell(_EVIL)
    table([(_EVIL, "1")])
    out, err = capsys.readouterr()
    assert _SEEN in err
    assert out.count(_SEEN) == 2
    assert not set(out + err) & set("\x1b\x07\x9b\x7f\t\r")
