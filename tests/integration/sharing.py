"""Roots that are linked to a repository; commands run in this process, as in `syncing`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from tests.integration.syncing import Sync, set_home
from tests.kit.repositories import make_repository, password_file


@dataclass
class Share(Sync):
    """The command line against one repository.

    Attributes:
        place: Its URL.
        recovery: A key of it.
    """

    opens: ClassVar[str] = "--password-file"
    place: str = ""
    recovery: str = ""

    @property
    def url(self) -> str:
        return self.place


def new_share(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str | None = None
) -> Share:
    """A new repository, in a directory below `home` unless `place` is the URL of another one."""
    set_home(home, monkeypatch)
    for name in ("BLOCKSYNC_PASSWORD", "BLOCKSYNC_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)
    url = f"file://{home}/repository" if place is None else place
    recovery = make_repository(url)
    return Share(home, "", password_file(home), capsys, place=url, recovery=recovery)
