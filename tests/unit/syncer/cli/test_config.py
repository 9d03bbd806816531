"""Where config.toml is looked for, and what is no configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from syncer.cli.registry.config import MAX_BYTES, read_settings
from syncer.cli.registry.settings import Settings
from syncer.errors import NotAllowedError, UsageError


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_no_file_sets_nothing(tmp_path: Path) -> None:
    assert read_settings({"HOME": str(tmp_path)}) == Settings()


@pytest.mark.parametrize("xdg", [None, "relative", ""])
def test_it_is_in_the_home_where_xdg_does_not_say(tmp_path: Path, xdg: str | None) -> None:
    write(tmp_path / ".config/blocksync/config.toml", b"[peers]\nport = 5")
    environment = {"HOME": str(tmp_path)} | ({} if xdg is None else {"XDG_CONFIG_HOME": xdg})
    assert read_settings(environment).peers.port == 5


def test_it_is_where_xdg_says(tmp_path: Path) -> None:
    write(tmp_path / "x/blocksync/config.toml", b"[peers]\nport = 5")
    assert read_settings({"HOME": "/nowhere", "XDG_CONFIG_HOME": str(tmp_path / "x")}).peers.port == 5


@pytest.mark.parametrize(("content", "said"), [(b"\xff", "not UTF-8"), (b"#" * (MAX_BYTES + 1), "longer than")])
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    write(tmp_path / "blocksync/config.toml", content)
    with pytest.raises(UsageError, match=f"config.toml is {said}"):
        read_settings({"XDG_CONFIG_HOME": str(tmp_path)})


def test_what_can_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "blocksync/config.toml").mkdir(parents=True)
    with pytest.raises(NotAllowedError, match=r"config\.toml: Is a directory"):
        read_settings({"XDG_CONFIG_HOME": str(tmp_path)})


def test_reading_it_loads_no_cipher() -> None:
    """Every command that looks at peers reads it first: breaks when that costs the start of a cipher's library."""
    program = "import syncer.cli.registry.settings, sys; print({'cryptography', 'trio', 'socket'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"
