"""The namespaces of tests: they are beside others' mounts, and keep none of them alive."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.kit.hostfs import LET_GO, apart, mounted_file


def test_a_namespace_keeps_no_host_of_another_test_alive(tmp_path: Path) -> None:
    """Breaks if an image that is mounted again is still the filesystem that was ended there, failed as that may be."""
    script = f"set -eu\n{LET_GO}\necho\nread -r _"
    with mounted_file(tmp_path, 8 << 20, "mkfs.ext4", "-q"):
        other = subprocess.Popen(
            apart("unshare", "--mount", "--propagation", "private", "sh", "-c", script),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
    found = subprocess.run(["losetup", "-j", tmp_path / "host.img"], capture_output=True, text=True, check=True)
    other.communicate(b"\n")
    assert other.returncode == 0
    assert found.stdout == ""
