"""What a server sent that speaks no HTTP is quoted as one short line."""

from __future__ import annotations

from http.client import BadStatusLine

from urllib3.exceptions import ProtocolError

from syncer.remote.http.transport import _reason


def test_garbage_in_place_of_a_status_line_is_quoted_by_its_beginning() -> None:
    line = "\x1b[2J\nblocksync: all is well " + "x" * 60_000
    told = _reason(ProtocolError("Connection aborted.", BadStatusLine(line)))
    assert len(told) < 200
    assert told.isprintable()
    assert "all is well" in told


def test_what_the_host_says_is_told_whole() -> None:
    assert _reason(ProtocolError("Connection aborted.", ConnectionResetError(104, "Connection reset by peer"))) in {
        "Connection reset by peer",
        "('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
    }
