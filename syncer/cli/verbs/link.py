"""`blocksync link`: make a folder a device of a share."""

from __future__ import annotations

import os
import uuid as uuids

import click
import msgspec
import trio
from msgspec.structs import replace

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.layout import check_block_size
from blockfs.control.client import ControlClient
from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import code_of
from blockfs.runtime.output import JsonValue, json_line, note, shown
from blockfs.runtime.units import parse_duration
from syncer.cli.limits import NO_LIMITS, Limits, limit_options
from syncer.cli.passphrase import PASSWORD_FILE_HELP
from syncer.cli.paths import PATH
from syncer.cli.registry.clouds import find_remote
from syncer.cli.registry.repositories import agree, has_lost_heads, refuse_inside, unlocked
from syncer.cli.registry.roots import (
    FORMAT,
    MIN_POLL_INTERVAL_S,
    OPEN_FILES_INTERVAL_S,
    LinkedRoot,
    Registry,
    RootRecord,
    encoded_path,
    make_private,
)
from syncer.cli.session.opening import open_state_of, open_trash
from syncer.engine.root_state import RootState
from syncer.errors import CorruptionError, NotFoundError, RootIdentityError, UsageError
from syncer.local.folder.identity import Folder, look_at_folder, open_folder, read_marker, write_marker
from syncer.local.folder.private import PrivateFolder
from syncer.local.safe_open import DIRECTORY_FLAGS
from syncer.local.verbs.retention import KEEP_S
from syncer.local.volume.mount import find_mount
from syncer.ports.remote import Grid
from syncer.remote.kamaki.discovery import Storage
from syncer.remote.open import Way, open_remote
from syncer.remote.stores.urls import is_store_url, parse_store_url
from syncer.remote.url import nested, parse_url
from syncer.state.statedb import StateDB
from syncer.watch import control


class _Volume(msgspec.Struct, frozen=True, kw_only=True):
    """The mounted volume that ROOT is."""

    uuid: str
    block_size: int


class _Choices(msgspec.Struct, frozen=True, kw_only=True):
    """A root's options; see RootRecord."""

    keep_trash_s: float
    open_files_interval_s: float
    poll_interval_s: float | None
    limits: Limits
    xattrs: bool
    special_modes: bool


@click.command("link")
@click.argument("root", type=PATH)
@click.argument("url", required=False)
@click.option("--cloud", metavar="NAME", help="A cloud of kamaki's configuration ($KAMAKI_CONFIG, ~/.kamakirc).")
@click.option("--password-file", type=click.Path(), metavar="FILE", help=PASSWORD_FILE_HELP)
@click.option("--token-file", type=click.Path(dir_okay=False), help="Lines TOKEN ACCOUNT; default: $BLOCKSYNC_TOKEN.")
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False),
    help="Trust these certificates (PEM) instead of the system's, for https; kept for later commands.",
)
@click.option("--relink", is_flag=True, help="Start anew: forget the base, merge both sides, delete nothing.")
@click.option("--keep-trash", metavar="TIME", help="Keep deleted and replaced versions for so long; default: 30d.")
@click.option(
    "--open-files-interval",
    metavar="TIME",
    help="`watch` pushes files that stay open for writing this often; 0: never; default: 10m.",
)
@click.option(
    "--poll-interval",
    metavar="TIME",
    help="Where nobody tells `watch` of others' changes it looks this often, at least; 0: as usual (60s).",
)
@click.option("--xattrs/--no-xattrs", default=None, help="Sync extended attributes (user.*), too; default: no.")
@click.option(
    "--special-modes/--no-special-modes",
    default=None,
    help="Sync setuid, setgid and sticky bits, too, if you trust all who can write to the share; default: no.",
)
@click.option("--no-create", is_flag=True, help="Fail if the container does not exist, instead of making it.")
@limit_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    *,
    root: bytes,
    url: str | None,
    cloud: str | None,
    token_file: str | None,
    password_file: str | None,
    ca_file: str | None,
    relink: bool,
    keep_trash: str | None,
    open_files_interval: str | None,
    poll_interval: str | None,
    xattrs: bool | None,
    special_modes: bool | None,
    no_create: bool,
    limit_up: str | None,
    limit_down: str | None,
    as_json: bool,
) -> None:
    """Link ROOT, a folder or the mount point of a volume, to the container or the repository at URL.

    URL is pithos+http(s)://BASE/ACCOUNT/CONTAINER, or kamaki://CLOUD/CONTAINER for a cloud of kamaki's configuration.
    With ?prefix=FOLDER (kamaki: /FOLDER) the root is one folder of the container.
    Of a repository, which is encrypted, URL is swift://CLOUD_OR_HOST/CONTAINER, s3://BUCKET, sftp://HOST/PATH or
    file:///PATH; its passphrase is asked for, or read from --password-file, $BLOCKSYNC_PASSWORD_FILE or
    $BLOCKSYNC_PASSWORD, and not needed again.
    Roots that are linked to one URL are devices of one share. `blocksync reconcile` then does the work.
    """
    path = os.path.realpath(root)
    if not os.path.isdir(path):
        raise NotFoundError(f"{shown(root)} is not an existing directory")
    registry = Registry(os.environ)
    known = registry.find(path)
    if ca_file is None and known is not None and not relink and cloud is None:
        ca_file = _kept_authorities(known, url or "")
    remote = find_remote(url, cloud, token_file, os.environ, ca_file)
    if known is not None and known.record.url != remote.url and not relink:
        raise UsageError(f"{shown(path)} is linked to {known.record.url}; --relink links it to another URL")
    registry.refuse_overlap(path)
    times = (keep_trash, open_files_interval, poll_interval)
    choices = _choices(known, times, (limit_up, limit_down), xattrs=xattrs, special_modes=special_modes)
    volume = _volume_at(path)
    _refuse_twice(registry, path, volume)
    _refuse_nested(registry, path, remote.url)
    refuse_inside(registry, path, remote.url)
    if is_store_url(remote.url):
        same = known if known is not None and known.record.url == remote.url else None
        remote = replace(remote, token=unlocked(remote, same, password_file, os.environ, anew=relink))
    grid = trio.run(_container, remote, no_create)
    _check_blocks(grid, remote.url)
    is_new = known is None or relink
    lost = is_new and is_store_url(remote.url) and has_lost_heads(remote, agreed=relink)
    if known is not None and not relink:
        linked = registry.write(_with(choices, remote, known.record), remote.token)
        become = "key is kept" if linked.in_repository else "token is renewed"
        told = f"{shown(path)} is linked to {remote.url} already; its {become}"
    else:
        linked = _link(registry, known, path, remote, volume, grid, choices, agreed=lost)
        told = f"linked {shown(path)} to {remote.url}"
    control.reload(registry.socket)
    if as_json:
        json_line("link", _fields(linked, again=known is not None, merges=is_new))
    else:
        note(told)


def _kept_authorities(known: LinkedRoot, url: str) -> str | None:
    """What an earlier `link` to the same URL was told to trust."""
    try:
        text = str(parse_store_url(url) if is_store_url(url) else parse_url(url))
        return known.record.ca_file if text == known.record.url else None
    except ValueError:
        return None


def _fields(linked: LinkedRoot, *, again: bool, merges: bool) -> dict[str, JsonValue]:
    record = linked.record
    return {
        "root": shown(linked.path),
        "uuid": record.uuid,
        "url": record.url,
        "kind": "volume" if record.folder is None else "folder",
        "block_size": record.block_size,
        "again": again,
        "merges": merges,
    }


def _volume_at(path: bytes) -> _Volume | None:
    """The volume that is mounted at exactly this path; None for an ordinary folder."""
    if os.path.exists(os.path.join(path, b"volume.toml")):
        raise UsageError(f"{shown(path)} is a volume: mount it and link its mount point")
    mount = find_mount(path)
    if mount is None:
        return None
    with ControlClient(mount.source) as client:
        status = client.status()
    return _Volume(uuid=status.uuid, block_size=status.block_size)


def _refuse_twice(registry: Registry, path: bytes, volume: _Volume | None) -> None:
    """A volume or folder that is linked under another path must not be linked again."""
    found = None if volume is not None else _folder_now(path)
    for other in registry.all():
        record = other.record
        same_volume = volume is not None and record.volume_uuid == volume.uuid
        same_folder = found is not None and record.folder == found
        if other.path != path and (same_volume or same_folder):
            raise UsageError(f"{shown(path)} is linked as {shown(other.path)}; `blocksync unlink` that first")


def _refuse_nested(registry: Registry, path: bytes, url: str) -> None:
    """Two roots of one machine must not have some objects in common and others not."""
    for other in registry.all():
        if other.path != path and nested(other.record.url, url):
            raise UsageError(
                f"{shown(other.path)} is linked to {other.record.url}: one of the two folders lies in the other, and "
                "each change would travel twice; link a folder beside it, or the same one"
            )


def _folder_now(path: bytes) -> Folder | None:
    descriptor = os.open(path, DIRECTORY_FLAGS)
    try:
        marker = read_marker(descriptor)
        return None if marker is None else look_at_folder(descriptor, marker)
    finally:
        os.close(descriptor)


async def _container(remote: Storage, no_create: bool) -> Grid:
    """The container; made if it does not exist, unless that is not wanted."""
    client = open_remote(Way(url=remote.url, secret=remote.token, settings=remote.settings))
    try:
        return (await client.open()).grid
    except NotFoundError:
        if no_create:
            raise
        return (await client.open(create=True)).grid
    finally:
        await client.close()


def _check_blocks(grid: Grid, url: str) -> None:
    """Another block size than the volume's is fine: `local/volume/reblock.py`."""
    if grid.block_hash.lower() != "sha256":
        raise UsageError(f"{url} names blocks by {grid.block_hash}; only sha256 is supported")
    check_block_size(grid.block_size)


def _link(
    registry: Registry,
    known: LinkedRoot | None,
    path: bytes,
    remote: Storage,
    volume: _Volume | None,
    grid: Grid,
    choices: _Choices,
    *,
    agreed: bool,
) -> LinkedRoot:
    """Make it a root; `agreed`: to a repository that has lost its heads."""
    uuid = known.record.uuid if known is not None else str(uuids.uuid4())
    state, data = registry.make_place(uuid)
    with _fresh_state(path, state) as database:
        # Under the state's lock, so that no cycle runs meanwhile. The marker comes before the record that expects it.
        root_state = RootState(database)
        root_state.forget_sides()
        is_it = _is_still(path, known)
        folder = None if volume is not None else _mark(path, uuid)
        if folder is not None:
            _make_blocks(data, grid.block_size)
        if folder is not None and not is_it:
            with open_trash(path, grid.block_size, choices.keep_trash_s, root_state) as trash:
                for back in trash.adopt():
                    note(f"{shown(back)}: a version that nobody had seen is out of the trash again")
        record = RootRecord(
            format=FORMAT,
            uuid=uuid,
            path=encoded_path(path),
            url=remote.url,
            block_size=grid.block_size,
            folder=folder,
            volume_uuid=None if volume is None else volume.uuid,
        )
        linked = registry.write(_with(choices, remote, record), remote.token)
        if agreed:
            agree(linked, remote.token)
        return linked


def _is_still(path: bytes, known: LinkedRoot | None) -> bool:
    """Whether the folder is the one that was linked at its path, and no copy."""
    if known is None or known.record.folder is None:
        return False
    try:
        os.close(open_folder(path, known.record.folder))
    except RootIdentityError:
        return False
    return True


def _with(choices: _Choices, remote: Storage, record: RootRecord) -> RootRecord:
    """The record of a root that is linked with these choices."""
    return msgspec.structs.replace(
        record,
        keep_trash_s=choices.keep_trash_s,
        open_files_interval_s=choices.open_files_interval_s,
        poll_interval_s=choices.poll_interval_s,
        ca_file=remote.settings.ca_file,
        ignore_certificates=remote.settings.ignore_certificates,
        limit_up=choices.limits.up,
        limit_down=choices.limits.down,
        xattrs=choices.xattrs,
        special_modes=choices.special_modes,
    )


def _choices(
    known: LinkedRoot | None,
    times: tuple[str | None, str | None, str | None],
    rates: tuple[str | None, str | None],
    *,
    xattrs: bool | None,
    special_modes: bool | None,
) -> _Choices:
    """What is given on the command line, else what was chosen before, else the defaults."""
    keep_trash, open_files_interval, poll_interval = times
    kept_s = KEEP_S if known is None else known.record.keep_trash_s
    interval_s = OPEN_FILES_INTERVAL_S if known is None else known.record.open_files_interval_s
    limits = NO_LIMITS if known is None else known.record.limits
    poll_s = None if known is None else known.record.poll_interval_s
    return _Choices(
        keep_trash_s=kept_s if keep_trash is None else parse_duration(keep_trash),
        open_files_interval_s=interval_s if open_files_interval is None else parse_duration(open_files_interval),
        poll_interval_s=poll_s if poll_interval is None else _poll_interval_s(poll_interval),
        limits=limits.overridden(*rates),
        xattrs=(known is not None and known.record.xattrs) if xattrs is None else xattrs,
        special_modes=(known is not None and known.record.special_modes) if special_modes is None else special_modes,
    )


def _poll_interval_s(text: str) -> float | None:
    """What `--poll-interval` says; None: as usual."""
    span_s = parse_duration(text)
    if 0 < span_s < MIN_POLL_INTERVAL_S:
        raise UsageError(f"--poll-interval {text}: expected {MIN_POLL_INTERVAL_S:g}s or more, or 0 for the usual one")
    return span_s or None


def _fresh_state(path: bytes, state: str) -> StateDB:
    """The root's StateDB, new, or the old one; a damaged one is put aside."""
    try:
        return open_state_of(path, state)
    except NotFoundError:
        return StateDB.create(state)
    except CorruptionError:
        aside = StateDB.set_aside(state)
        note(f"the damaged state is kept as {aside}")
        return StateDB.create(state)


def _mark(path: bytes, uuid: str) -> Folder:
    """Make the private folder and the marker; the filesystem must be able to exchange names."""
    descriptor = os.open(path, DIRECTORY_FLAGS)
    try:
        try:
            private = PrivateFolder(descriptor)
        except OSError as error:
            if code_of(error) != ExitCode.UNEXPECTED:
                raise
            raise UsageError(
                f"{shown(path)} can't be a root: no folder can be made in it ({error.strerror})"
            ) from error
        try:
            private.probe_renames()
            write_marker(private.top, uuid)
        finally:
            private.close()
        return look_at_folder(descriptor, uuid)
    finally:
        os.close(descriptor)


def _make_blocks(data: str, block_size: int) -> None:
    make_private(os.path.dirname(data), data)
    blocks = os.path.join(data, "blocks")
    if not os.path.exists(blocks):
        BlockDirectory.create(blocks, block_size=block_size).close()
