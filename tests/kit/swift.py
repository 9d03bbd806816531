"""A real OpenStack Swift on the loopback, with its S3 API: `scripts/swift`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from syncer.remote.http.address import parse_address
from syncer.remote.stores.swift import TempAuth
from tests.kit.starting import PROJECT

USER, KEY = "test:tester", "testing"


class Swift(msgspec.Struct, frozen=True):
    """A server.

    Attributes:
        url: Of it.
        folder: What it has on disk.
    """

    url: str
    folder: Path

    @property
    def credentials(self) -> TempAuth:
        return TempAuth(address=parse_address(f"{self.url}/auth/v1.0"), user=USER, key=KEY)

    @property
    def s3(self) -> dict[str, str]:
        """The environment for its S3 API."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": KEY}


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Swift]:
    """Start one, and end it.

    Args:
        folder: An empty one.
        options: Of its configuration, `FILE/SECTION/KEY=VALUE`.
    """
    settings = [word for option in options for word in ("-o", option)]
    command = [sys.executable, PROJECT / "scripts/swift", "--no-fsync", "--dir", folder, *settings]
    subprocess.run([*command, "start"], check=True, stdout=subprocess.DEVNULL)
    try:
        yield Swift(json.loads((folder / "state.json").read_text())["url"], folder)
    finally:
        subprocess.run([*command, "destroy"], check=True)
