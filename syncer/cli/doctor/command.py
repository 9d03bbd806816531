"""`blocksync doctor`: is everything here as blocksync needs it? Looks only: it makes, changes and repairs nothing."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import stat
from collections.abc import Iterator

import click
from msgspec.structs import replace

from blockfs.errors import BlockfsError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import said
from blockfs.runtime.mountinfo import is_below, read_mounts
from blockfs.runtime.output import json_line, shown, tell
from blockfs.runtime.reflink import clone_file
from blockfs.runtime.units import counted, format_size
from syncer.cli.doctor import diagnosis, lancheck, server, store
from syncer.cli.doctor.diagnosis import Check, Level, failed
from syncer.cli.paths import PATH
from syncer.cli.registry.condition import holder_of
from syncer.cli.registry.roots import BadRecord, LinkedRoot, Registry
from syncer.cli.verbs.status import held_by
from syncer.core.model import Kind
from syncer.core.paths import PRIVATE
from syncer.engine.root_state import RootState
from syncer.errors import (
    CorruptionError,
    FormatTooNewError,
    NotAllowedError,
    RootIdentityError,
    SyncerError,
)
from syncer.local.folder.identity import verify_folder
from syncer.local.safe_open import DIRECTORY_FLAGS
from syncer.local.volume.mount import check_mount
from syncer.state.statedb import StateDB


@click.command("doctor")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per check.")
def command(root: bytes | None, as_json: bool) -> int:
    """Check this host, and ROOT (default: every linked root), its state and its server or store. Changes nothing.

    Each line is ok, warn or fail, with what to do about it. Exit code 15 if stored data is damaged, 3 if another one
    fails. To ask a repository's store for the time, it makes a small file there, and removes it.
    """
    checks: list[Check] = []
    for place, check in _all(root):
        checks.append(check)
        if as_json:
            fields = {"subject": check.subject, "level": check.level.value, "text": check.text, "remedy": check.remedy}
            json_line("check", {"root": place, **fields})
        else:
            _show(place, check)
    if any(check.damaged for check in checks):
        return int(ExitCode.CORRUPTION)
    failed = diagnosis.worst(checks) is Level.FAIL
    return int(ExitCode.PARTLY_DONE if failed else ExitCode.DONE)


def _all(root: bytes | None) -> Iterator[tuple[str | None, Check]]:
    yield None, diagnosis.kernel(os.uname().release)
    yield None, _fuse()
    registry = Registry(os.environ)
    try:
        chosen = registry.chosen(root)
    except (PermissionError, SyncerError) as error:
        if root is not None:
            raise
        by_whom = isinstance(error, PermissionError)
        remedy = "see that you are the user who linked them; then their owner's" if by_whom else "as it says"
        yield None, failed("linked roots", str(error), remedy)
        return
    for bad in chosen.bad:
        yield None, _bad_record(bad)
    if not chosen.roots and not chosen.bad:
        yield None, Check(subject="linked roots", level=Level.OK, text="none")
    directories = 0
    for linked in chosen.roots:
        place = shown(linked.path)
        for check in _local(linked):
            yield place, check
        state, folders = _state(linked)
        directories += folders
        yield place, state
        for check in (store if linked.in_repository else server).checks(linked):
            yield place, check
        yield place, lancheck.of_root(linked, registry, os.environ)
    yield None, diagnosis.watches(_watch_limit(), directories)
    for check in lancheck.of_host(registry, os.environ):
        yield None, check


def _bad_record(bad: BadRecord) -> Check:
    remedies = {
        CorruptionError: f"rm {bad.path}; then `blocksync link` that root again: it merges both sides, deletes nothing",
        FormatTooNewError: "install the newer blocksync",
        NotAllowedError: "run as the user who linked the root, or give the files back to that user",
    }
    remedy = remedies.get(type(bad.error), "as it says")
    damaged = isinstance(bad.error, CorruptionError)
    return Check(subject="linked roots", level=Level.FAIL, text=str(bad.error), remedy=remedy, damaged=damaged)


def _fuse() -> Check:
    return diagnosis.fuse(
        device=os.access("/dev/fuse", os.R_OK | os.W_OK),
        library=importlib.util.find_spec("pyfuse3") is not None,
        helper=shutil.which("fusermount3") is not None,
        root=os.geteuid() == 0,
        release=platform.release(),
    )


def _watch_limit() -> int | None:
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


# --- the local side


def _local(linked: LinkedRoot) -> Iterator[Check]:
    try:
        root = os.open(linked.path, DIRECTORY_FLAGS)
    except OSError as error:
        yield failed("root", f"{error.strerror}", "mount it, or bring it back; `blocksync unlink` forgets it")
        return
    try:
        yield _identity(linked, root)
        yield diagnosis.exchange(_filesystem(linked.path))
        if linked.record.folder is not None:
            yield _reflink(root)
            yield from _twins(linked)
        yield _case(root)
        found = os.fstatvfs(root)
        yield diagnosis.space("space", found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
    finally:
        os.close(root)


def _identity(linked: LinkedRoot, root: int) -> Check:
    record = linked.record
    try:
        if record.folder is not None:
            verify_folder(root, linked.path, record.folder)
        else:
            check_mount(linked.path, record.volume_uuid or "")
    except (RootIdentityError, BlockfsError) as error:
        remedy = f"mount it; if it is meant, `blocksync link {shown(linked.path)} {record.url} --relink`"
        return failed("root", str(error), remedy)
    return Check(subject="root", level=Level.OK, text="is the one that was linked")


def _filesystem(path: bytes) -> str:
    mounts = [mount for mount in read_mounts() if is_below(path, mount.mountpoint)]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).filesystem_type if mounts else "unknown"


def _reflink(root: int) -> Check:
    """Tried with two files that never get a name."""
    try:
        first = os.open(b".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=root)
    except OSError:
        return Check(
            subject="reflink", level=Level.OK, text="can't be tried here; unchanged parts are copied if need be"
        )
    try:
        second = os.open(b".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=root)
        try:
            if clone_file(first, second):
                return Check(subject="reflink", level=Level.OK, text="replaced files share their unchanged parts")
        except OSError:
            pass
        finally:
            os.close(second)
    finally:
        os.close(first)
    return Check(subject="reflink", level=Level.OK, text="none: a pull copies what did not change, and needs the room")


def _twins(linked: LinkedRoot) -> Iterator[Check]:
    try:
        with StateDB.open(linked.state, read_only=True) as database:
            found = held_by(linked, RootState(database))
    except (SyncerError, OSError):
        return  # told of below
    if found.files:
        text = f"{found.files}, to find what changes in large files; room they hold: {format_size(found.bytes)}"
        yield Check(subject="twins", level=Level.OK, text=text)


def _case(root: int) -> Check:
    """The private folder is there since the first cycle: is it found under another spelling?"""
    try:
        os.stat(PRIVATE.upper(), dir_fd=root, follow_symlinks=False)
    except OSError:
        return Check(subject="names", level=Level.OK, text="upper and lower case differ")
    return Check(subject="names", level=Level.WARN, text="upper and lower case are one name here",
                 remedy="names on the server that differ in case only are kept apart by renaming one")  # fmt: skip


# --- what is remembered


def _state(linked: LinkedRoot) -> tuple[Check, int]:
    """The StateDB; and how many directories it knows that want a watch each."""
    relink = f"blocksync link {shown(linked.path)} {linked.record.url} --relink"
    try:
        with StateDB.open(linked.state, read_only=True) as database:
            base, last = database.load_base(), RootState(database).last_cycle()
    except NotAllowedError as error:
        return failed(
            "state", str(error), "run as the user who linked the root, or give the files back to that user"
        ), 0
    except FormatTooNewError as error:
        return failed("state", str(error), "install the newer blocksync"), 0
    except (SyncerError, OSError) as error:
        check = failed("state", said(error), f"{relink}: it merges both sides anew and deletes nothing")
        return replace(check, damaged=isinstance(error, CorruptionError)), 0
    folders = sum(1 for row in base.rows.values() if row.node.kind is Kind.DIRECTORY) + 1
    watched = folders if linked.record.folder is not None else 0
    what = "key" if linked.in_repository else "token"
    try:
        if stat.S_IMODE(os.stat(linked.secret_file).st_mode) & 0o077:
            return Check(subject="state", level=Level.WARN, text=f"others can read the {what}",
                         remedy=f"chmod 600 {linked.secret_file}"), watched  # fmt: skip
    except OSError:
        return failed(
            "state", f"the {what} is gone", f"blocksync link {shown(linked.path)} {linked.record.url}"
        ), watched
    holder = holder_of(os.path.join(linked.state, "lock"))
    busy = "" if holder is None else f"; process {holder} is at work on it"
    cycle = "never reconciled" if last is None else f"last cycle ended with {last.exit_code}"
    return Check(subject="state", level=Level.OK, text=f"{counted(len(base), 'node', 'nodes')}, {cycle}{busy}"), watched


def _show(place: str | None, check: Check) -> None:
    tell(f"{check.level.value:<4}  {'' if place is None else place + ': '}{check.subject}: {check.text}")
    if check.remedy:
        tell(f"      -> {check.remedy}")
