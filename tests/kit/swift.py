"""A real OpenStack Swift on the loopback, with its S3 API: `scripts/swift`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
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

    def account_with_quota(self, quota_bytes: int) -> TempAuth:
        """Another account, that may hold no more."""

        def ask(url: str, method: str, headers: dict[str, str]) -> Mapping[str, str]:
            with urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers)) as reply:
                return reply.headers

        sign_in = f"{self.url}/auth/v1.0"
        token = ask(sign_in, "GET", {"X-Auth-User": "admin:admin", "X-Auth-Key": "admin"})["X-Auth-Token"]
        quota = {"X-Auth-Token": token, "X-Account-Meta-Quota-Bytes": str(quota_bytes)}
        ask(f"{self.url}/v1/AUTH_test2", "POST", quota)
        return TempAuth(address=parse_address(sign_in), user="test2:tester2", key="testing2")

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
