"""What programs that tell of notices are given."""

from __future__ import annotations

import os

import pytest

from syncer.cli.verbs.watch import _environment


@pytest.mark.parametrize(
    ("is_there", "own", "told"),
    [
        (True, {}, f"/run/user/{os.getuid()}"),
        (True, {"XDG_RUNTIME_DIR": "/elsewhere"}, "/elsewhere"),
        (False, {}, None),
    ],
)
def test_a_daemon_of_the_system_finds_the_bus_of_its_user(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str], told: str | None, *, is_there: bool
) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: is_there and path == f"/run/user/{os.getuid()}")
    assert _environment({"PATH": "/bin", **own}).get("XDG_RUNTIME_DIR") == told
