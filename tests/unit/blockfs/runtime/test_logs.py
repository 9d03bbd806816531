"""The mount's log: JSON lines, bounded, and never a reason to fail."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from blockfs.runtime import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    handlers, level, least = list(logging.root.handlers), logging.root.level, list(logs._least)
    structlog.reset_defaults()
    logs._least[:] = [logging.WARNING]
    yield
    logs._least[:] = least
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_events_are_json_lines_with_readable_bytes() -> None:
    stream = io.StringIO()
    logs.log_to(stream)
    structlog.get_logger().info("mount.ready", volume=b"/v\xff", size_bytes=3)
    structlog.get_logger().debug("not.shown")
    logging.getLogger("pyfuse3").warning("something %s", "odd")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["volume"], first["level"]) == ("mount.ready", "/v\\xff", "info")
    assert (second["event"], second["text"], second["logger"]) == ("library.logged", "something odd", "pyfuse3")


def test_without_a_place_to_log_to_only_what_matters_is_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """A command's output is its own: with --json somebody parses it."""
    log = logs.Log(root="/r")
    log.info("links.opened")
    assert not structlog.is_configured()
    log.warning("peer.banned", peer="ab")
    out, err = capsys.readouterr()
    assert out == ""
    told = json.loads(err)
    assert (told["event"], told["root"], told["peer"]) == ("peer.banned", "/r", "ab")


def test_what_is_below_the_level_is_not_told() -> None:
    stream = io.StringIO()
    logs.log_to(stream, level=logging.INFO)
    logs.Log().debug("not.shown")
    logs.Log().info("shown")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["shown"]


def test_a_librarys_exception_is_logged_with_its_traceback() -> None:
    stream = io.StringIO()
    logs.log_to(stream)
    try:
        {}["lost"]
    except KeyError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
    assert "KeyError: 'lost'" in json.loads(stream.getvalue())["exception"]


def test_a_stream_that_fails_is_no_failure() -> None:
    stream = io.StringIO()
    stream.close()
    logs.log_to(stream)
    structlog.get_logger().info("mount.ready")


def test_an_oversized_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 10)
    path = os.fsencode(tmp_path / "mount.log")
    for text in ("a long first line\n", "second\n"):
        with logs.open_log(path) as stream:
            stream.write(text)
    assert (tmp_path / "mount.log").read_text() == "second\n"
    assert (tmp_path / "mount.log.1").read_text() == "a long first line\n"


def test_nothing_is_appended_to_what_a_link_leads_to(tmp_path: Path) -> None:
    """Whose a volume's folder is, would else have root write names of his choice to any file."""
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "mount.log").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        logs.open_log(os.fsencode(tmp_path / "mount.log"))
    assert (tmp_path / "precious").read_bytes() == b"precious"
