"""What is refused before there is a mount process. Those that start are the system tests' part."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockfs.cli.mount import mount_options
from blockfs.cli.mountoptions import Options
from blockfs.engine import volume
from blockfs.errors import UsageError
from blockfs.mount.daemon import run_daemon, run_foreground
from blockfs.runtime.notify import ServiceManager


def test_root_mounts_nobody_elses_volume_and_writes_nothing_to_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a link that somebody puts in the place of mount.log has root write to any file."""
    path = os.fsencode(tmp_path / "v")
    volume.init(path)
    (tmp_path / "m").mkdir()
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    os.symlink(precious, os.path.join(path, b"mount.log"))
    options = mount_options(path, os.fsencode(tmp_path / "m"), Options())
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    else:
        os.chown(path, 65534, 65534)
    with pytest.raises(UsageError, match="run this as that user"):
        run_daemon(options, ServiceManager(None))
    with pytest.raises(UsageError, match="run this as that user"):
        run_foreground(options, ServiceManager(None), lambda: None)
    assert precious.read_bytes() == b"precious"
