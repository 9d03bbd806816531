"""Repositories for tests of the program, made quickly: scrypt is the cheapest that there is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import trio

from syncer.remote.repository.making import create
from syncer.remote.stores.opening import make_store

PASSPHRASE = "correct horse battery staple"
GRID = 64 << 10


def make_repository(url: str, environ: Mapping[str, str] | None = None) -> str:
    """A new one, with its container or directory; returns its recovery key."""

    async def make() -> str:
        store = make_store(url, None, os.environ if environ is None else environ)
        try:
            await store.open(create=True)
            _, recovery = await create(store, PASSPHRASE, grid=GRID, log2_n=10)
        finally:
            await store.close()
        return recovery

    return trio.run(make)


def password_file(folder: Path, text: str = PASSPHRASE) -> Path:
    """A file with a passphrase, as `--password-file` wants it."""
    path = folder / "passphrase"
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return path
