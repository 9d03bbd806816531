"""The registry of linked roots: one folder per root below `$XDG_STATE_HOME/blocksync/roots/`.

```
<uuid>/root.json   what is linked to what; written last by `link` and removed first by `unlink`: no root without it
<uuid>/paused      there: `blocksync watch` leaves the root alone
<uuid>/no-peers    there: the root has nothing to do with devices on the network
<uuid>/alone       how often in a row a `reconcile` looked for such devices and heard none; see cli/lan/solitude.py
<uuid>/token       the server's token, 0600
<uuid>/repository  instead of it where the share is a repository: its key, and the store's credentials, 0600
<uuid>/head        likewise: this device's last commit there
<uuid>/cache/      likewise: what it read of indexes, commits and trees, sealed; 1 GiB at most
<uuid>/ignore      the root's own ignore patterns, one a line; absent if there is none
<uuid>/db, lock    StateDB
<uuid>/lists/      block lists of an ordinary root's files: a cache
<uuid>/share-index/   which blocks other devices may have from here; made from the StateDB
<uuid>/lan-key     the share's key, 0600
```
An ordinary root's block directory is `$XDG_DATA_HOME/blocksync/<uuid>/blocks`.

Beside `roots`: `watch.sock` and `watch.lock` of the daemon, `volumes/` with what mounted volumes held over time,
`servers/` with where servers run, and `no-peers`: the same for every root, also later ones.
Older releases know no `no-peers`, and have no peers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from blockfs.runtime.atomic import sync_directory, write_atomically
from blockfs.runtime.mountinfo import is_below
from blockfs.runtime.output import shown
from syncer.cli.limits import Limits
from syncer.core.model import RelPath
from syncer.core.parts import Parts
from syncer.errors import (
    CorruptionError,
    FormatTooNewError,
    NotAllowedError,
    NotFoundError,
    SyncerError,
    UsageError,
)
from syncer.local.folder.identity import Folder
from syncer.local.verbs.retention import KEEP_S
from syncer.protocol.jsontext import MALFORMED
from syncer.state.statedb import exclusive

if TYPE_CHECKING:  # imported where a server is concerned: a tenth of a second
    from syncer.cli.lan.solitude import Solitude
    from syncer.remote.http.transport import HttpSettings

FORMAT: Final = 1
OPEN_FILES_INTERVAL_S: Final = 600.0  # a snapshot, and what changed since the last: seconds of work for a busy disk
MIN_POLL_INTERVAL_S: Final = 1.0  # most stores tell times to the second: nothing is seen sooner
_RECORD: Final = "root.json"
_IGNORE: Final = "ignore"
_PAUSED: Final = "paused"
_NO_PEERS: Final = "no-peers"
_ALONE: Final = "alone"
_TOKEN: Final = "token"  # noqa: S105 - the name of a file
_KEY: Final = "repository"
_HEAD: Final = "head"
_CACHE: Final = "cache"
_STORE_TOKEN: Final = "store-token"  # noqa: S105 - likewise
_MEDIUM: Final = frozenset({errno.EIO, errno.EISDIR, errno.EUCLEAN, errno.EBADMSG})  # concern one record, not all
_AGAIN: Final = "remove it and link that root again: both sides are then united, and nothing is deleted"


class RootRecord(msgspec.Struct, frozen=True, kw_only=True):
    """root.json.

    Attributes:
        uuid: Names the root, its state folder and (ordinary roots) its marker.
        path: Absolute real path, percent-encoded: paths are bytes.
        url: The container.
        block_size: Bytes.
        folder: What an ordinary root is recognised by; None for a mounted volume.
        volume_uuid: What a mounted volume is recognised by; None for an ordinary root.
        keep_trash_s: For how many seconds displaced and deleted versions are kept.
        ca_file: Authorities to trust instead of the system's; None: the system's.
        ignore_certificates: Trust every certificate (kamaki's ignore_ssl).
        limit_up: Bytes per second that are sent at most; None: no limit.
        limit_down: The same of what is received.
        xattrs: Extended attributes are synced, too.
        special_modes: Setuid, setgid and sticky bits are synced, too.
        poll_interval_s: Longest pause between two looks of `watch` at a share that nobody tells of; None: the usual.
    """

    format: int
    uuid: str
    path: str
    url: str
    block_size: int
    folder: Folder | None
    volume_uuid: str | None
    open_files_interval_s: float = OPEN_FILES_INTERVAL_S
    keep_trash_s: float = KEEP_S
    ca_file: str | None = None
    ignore_certificates: bool = False
    limit_up: int | None = None
    limit_down: int | None = None
    xattrs: bool = False
    special_modes: bool = False
    poll_interval_s: float | None = None

    @property
    def parts(self) -> Parts:
        """What of metadata the root takes part in."""
        return Parts(xattrs=self.xattrs, special_modes=self.special_modes)

    @property
    def settings(self) -> HttpSettings:
        """How to talk to the server."""
        from syncer.remote.http.transport import HttpSettings  # noqa: PLC0415 - see above

        return HttpSettings(
            ca_file=self.ca_file,
            ignore_certificates=self.ignore_certificates,
            limit_up=self.limit_up,
            limit_down=self.limit_down,
            poll_s=self.poll_interval_s,
        )

    @property
    def limits(self) -> Limits:
        """Of bandwidth."""
        return Limits(up=self.limit_up, down=self.limit_down)


class LinkedRoot(msgspec.Struct, frozen=True, kw_only=True):
    """One linked root.

    Attributes:
        record: Its root.json.
        state: Its state folder.
        data: Its data folder (ordinary roots).
    """

    record: RootRecord
    state: str
    data: str

    @property
    def path(self) -> bytes:
        """Absolute real path of ROOT."""
        return unquote_to_bytes(self.record.path)

    @property
    def lists(self) -> str:
        """Folder of the block list cache."""
        return os.path.join(self.state, "lists")

    @property
    def share_index(self) -> str:
        """Folder of the index of blocks that other devices may have from here."""
        return os.path.join(self.state, "share-index")

    @property
    def lan_key(self) -> str:
        """File with the share's key."""
        return os.path.join(self.state, "lan-key")

    @property
    def blocks(self) -> str:
        """The block directory of an ordinary root."""
        return os.path.join(self.data, "blocks")

    def ignore_patterns(self) -> list[bytes]:
        """The root's own ignore patterns: lines as they were given, comments and empty ones included."""
        try:
            with open(os.path.join(self.state, _IGNORE), "rb") as file:
                return file.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return []

    def set_ignore_patterns(self, patterns: Sequence[bytes]) -> None:
        """Replace them. Each observation reads them anew: a cycle that runs is not affected."""
        text = b"".join(pattern + b"\n" for pattern in patterns)
        write_atomically(os.path.join(self.state, _IGNORE), text, mode=0o600)

    @property
    def paused(self) -> bool:
        """Whether `blocksync watch` is to leave it alone."""
        return os.path.exists(os.path.join(self.state, _PAUSED))

    def pause(self, *, paused: bool) -> None:
        """Tell a daemon that reads the registry next; durable."""
        _mark(self.state, _PAUSED, there=paused)

    @property
    def peers_off(self) -> bool:
        """Whether it was said of this root that it has no peers."""
        return os.path.exists(os.path.join(self.state, _NO_PEERS))

    def set_peers(self, *, on: bool) -> None:
        """Say so; durable."""
        _mark(self.state, _NO_PEERS, there=not on)

    @property
    def solitude(self) -> Solitude:
        """What its commands remember of who is on the network."""
        from syncer.cli.lan.solitude import Solitude  # noqa: PLC0415 - where a block is missing

        return Solitude(os.path.join(self.state, _ALONE))

    @property
    def in_repository(self) -> bool:
        """Whether the share is a repository on an object store, and no container of a server."""
        from syncer.remote.stores.urls import is_store_url  # noqa: PLC0415 - `status` starts without it

        return is_store_url(self.record.url)

    @property
    def secret_file(self) -> str:
        """File with what opens the share."""
        return os.path.join(self.state, _KEY if self.in_repository else _TOKEN)

    @property
    def head(self) -> str:
        """File in which a device of a repository remembers its last commit."""
        return os.path.join(self.state, _HEAD)

    @property
    def cache(self) -> str:
        """Folder for what never changes of a repository, so that it is not asked for twice."""
        return os.path.join(self.state, _CACHE)

    @property
    def store_token(self) -> str:
        """File with the token of the last sign-in to a repository's store, so that not each command signs in."""
        return os.path.join(self.state, _STORE_TOKEN)

    def secret(self) -> str:
        """What `link` kept to open the share: a server's token; of a repository `remote.repository.access.Access`.

        Raises:
            NotFoundError: It is gone.
            CorruptionError: It is no text.
        """
        try:
            with open(self.secret_file, encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            raise NotFoundError(f"{self.secret_file} is gone; run `blocksync link` again") from None
        except UnicodeDecodeError:
            raise CorruptionError(f"{self.secret_file} is damaged; run `blocksync link` again, with --relink") from None


class BadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A root of which only the record's place is known.

    Attributes:
        uuid: Name of its state folder.
        path: The record.
        error: What is the matter with it: names the record, what was expected, and what to do.
    """

    uuid: str
    path: str
    error: SyncerError


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """What is linked.

    Attributes:
        roots: By path.
        bad: Records that can't be read. Each stands for a root that nothing is known of: the others are not concerned.
    """

    roots: list[LinkedRoot]
    bad: list[BadRecord]


class Registry:
    """All linked roots of a user."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Find the folders by XDG rules: variables that are unset or relative count as unset."""
        home = environment.get("HOME", os.path.expanduser("~"))
        self._roots = os.path.join(
            xdg_folder(environment, "XDG_STATE_HOME", os.path.join(home, ".local", "state")), "blocksync", "roots"
        )
        self._data = os.path.join(
            xdg_folder(environment, "XDG_DATA_HOME", os.path.join(home, ".local", "share")), "blocksync"
        )

    @property
    def socket(self) -> str:
        """Of the daemon."""
        return os.path.join(os.path.dirname(self._roots), "watch.sock")

    @property
    def notices(self) -> str:
        """What the daemon has told its user."""
        return os.path.join(os.path.dirname(self._roots), "notices.json")

    @property
    def metrics_token(self) -> str:
        """What opens the daemon's figures on its page."""
        return os.path.join(os.path.dirname(self._roots), "metrics-token")

    @property
    def volumes(self) -> str:
        """Folder of what mounted volumes held; see `cli.ui.history`."""
        return os.path.join(os.path.dirname(self._roots), "volumes")

    @property
    def servers(self) -> str:
        """Folder of what `serve` runs; see `cli.ui.servers`."""
        return os.path.join(os.path.dirname(self._roots), "servers")

    @property
    def peers_off(self) -> bool:
        """Whether it was said of all roots, also later ones, that they have no peers."""
        return os.path.exists(os.path.join(os.path.dirname(self._roots), _NO_PEERS))

    def set_peers(self, *, on: bool) -> None:
        """Say so; durable. What was said of single roots stays."""
        folder = os.path.dirname(self._roots)
        make_private(folder)
        _mark(folder, _NO_PEERS, there=not on)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Be the one daemon of these roots.

        Raises:
            LockedError: There is one.
        """
        folder = os.path.dirname(self._roots)
        make_private(folder)
        with exclusive(os.path.join(folder, "watch.lock"), "the daemon's lock"):
            yield

    def look(self) -> Linked:
        """Every linked root."""
        try:
            names = sorted(os.listdir(self._roots))
        except FileNotFoundError:
            return Linked(roots=[], bad=[])
        found: list[LinkedRoot] = []
        bad: list[BadRecord] = []
        for name in names:
            try:
                root = self._read(name)
            except SyncerError as error:
                bad.append(BadRecord(uuid=name, path=os.path.join(self.place(name)[0], _RECORD), error=error))
            else:
                found += [] if root is None else [root]
        return Linked(roots=sorted(found, key=lambda root: root.path), bad=bad)

    def all(self) -> list[LinkedRoot]:
        """Every linked root, by path, for who must know them all.

        Raises:
            SyncerError: A record can't be read.
        """
        linked = self.look()
        if linked.bad:
            raise linked.bad[0].error
        return linked.roots

    def find(self, path: bytes) -> LinkedRoot | None:
        """The root at exactly this path, which need not exist any more.

        Raises:
            SyncerError: There is none, but a record that can't be read may be that of the root.
        """
        wanted = {os.path.realpath(path), os.path.abspath(path)}
        linked = self.look()
        found = next((root for root in linked.roots if root.path in wanted), None)
        if found is None and linked.bad:
            raise linked.bad[0].error
        return found

    def get(self, path: bytes) -> LinkedRoot:
        """Like `find`.

        Raises:
            NotFoundError: No such root.
            SyncerError: See `find`.
        """
        root = self.find(path)
        if root is None:
            raise NotFoundError(f"{shown(path)} is not linked; `blocksync link ROOT URL` links it")
        return root

    def by_uuid(self, uuid: str) -> LinkedRoot:
        """The root with this UUID.

        Raises:
            NotFoundError: It is not linked any more.
            SyncerError: Its record can't be read.
        """
        linked = self.look()
        root = next((root for root in linked.roots if root.record.uuid == uuid), None)
        for bad in linked.bad:
            if bad.uuid == uuid:
                raise bad.error
        if root is None:
            raise NotFoundError(f"no root with the UUID {uuid} is linked any more")
        return root

    def chosen(self, path: bytes | None) -> Linked:
        """The root at `path`, or all of them for None.

        Raises:
            NotFoundError: No such root.
            SyncerError: See `find`.
        """
        return self.look() if path is None else Linked(roots=[self.get(path)], bad=[])

    def containing(self, path: bytes) -> tuple[LinkedRoot, RelPath]:
        """Like `locate`, for what is in a root.

        Raises:
            NotFoundError: It lies in no linked root, or is one.
            SyncerError: See `locate`.
        """
        root, inside = self.locate(path)
        if not inside:
            raise NotFoundError(f"{shown(path)} is a linked root; expected a path in it")
        return root, inside

    def locate(self, path: bytes) -> tuple[LinkedRoot, RelPath]:
        """The root that `path` lies in, and the path relative to it: b"" for the root itself.

        What lies in a root is not followed, nor need it exist.

        Raises:
            NotFoundError: It lies in no linked root.
            SyncerError: It lies in none that is known, but there is a record that can't be read.
        """
        plain = os.path.abspath(path)
        above, name = os.path.split(plain)
        full = os.path.join(os.path.realpath(above), name)
        linked = self.look()
        for root in linked.roots:
            if full != root.path and is_below(full, root.path):
                return root, RelPath(full[len(root.path.rstrip(b"/")) + 1 :])
        for root in linked.roots:
            if root.path in (plain, full, os.path.realpath(path)):
                return root, RelPath(b"")
        if linked.bad:
            raise linked.bad[0].error
        raise NotFoundError(f"{shown(path)} lies in no linked root; `blocksync status` lists them")

    def refuse_overlap(self, path: bytes) -> None:
        """Make sure that neither a linked root nor our own files lie above or below a new one.

        Raises:
            UsageError: A root does: the same file would belong to two shares. Or our files do: a cycle would send the
                token and the state of its own work, and change them by sending.
        """
        for own in (os.path.dirname(self._roots), self._data):
            folder = os.path.realpath(os.fsencode(own))
            if path == folder or is_below(path, folder) or is_below(folder, path):
                raise UsageError(
                    f"{shown(path)} and blocksync's own files in {own} lie in each other; link another folder, or move "
                    "these out of it (XDG_STATE_HOME, XDG_DATA_HOME)"
                )
        for root in self.all():
            if root.path != path and (is_below(path, root.path) or is_below(root.path, path)):
                raise UsageError(f"{shown(path)} and the linked root {shown(root.path)} lie in each other")

    def place(self, uuid: str) -> tuple[str, str]:
        """State and data folder for a root."""
        return os.path.join(self._roots, uuid), os.path.join(self._data, uuid)

    def make_place(self, uuid: str) -> tuple[str, str]:
        """Make the state folder for a root, if it is not there; state and data folder, as `place`."""
        state, data = self.place(uuid)
        make_private(os.path.dirname(self._roots), self._roots, state)
        return state, data

    def write(self, record: RootRecord, secret: str) -> LinkedRoot:
        """Link: what opens the share, then the record that makes it a root."""
        state, data = self.place(record.uuid)
        root = LinkedRoot(record=record, state=state, data=data)
        self.make_place(record.uuid)
        write_atomically(root.secret_file, f"{secret}\n".encode(), mode=0o600)
        write_atomically(os.path.join(state, _RECORD), msgspec.json.encode(record) + b"\n", mode=0o600)
        sync_directory(self._roots)
        for name in {_TOKEN, _KEY, _STORE_TOKEN} - {
            os.path.basename(root.secret_file)
        }:  # of what it was linked to before
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(state, name))
        return root

    def remove(self, root: LinkedRoot) -> None:
        """Unlink: the record first, so that a crash leaves rubbish and not half a root."""
        os.unlink(os.path.join(root.state, _RECORD))
        sync_directory(root.state)
        shutil.rmtree(root.data, ignore_errors=True)
        shutil.rmtree(root.state)

    def _read(self, name: str) -> LinkedRoot | None:
        state, data = self.place(name)
        path = os.path.join(state, _RECORD)
        try:
            with open(path, "rb") as file:
                raw = file.read()
            found = msgspec.json.decode(raw, type=_Format).format
            if found > FORMAT:
                raise FormatTooNewError(path, found, FORMAT)
            return LinkedRoot(record=msgspec.json.decode(raw, type=RootRecord), state=state, data=data)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except MALFORMED as error:
            raise CorruptionError(
                f"{path}, the record of a linked root, is damaged: expected the line of JSON that `blocksync link` "
                f"wrote, found {len(raw)} bytes that are none ({error}); {_AGAIN}"
            ) from error
        except PermissionError as error:
            raise NotAllowedError(path, error.strerror or str(error)) from error
        except OSError as error:
            if error.errno not in _MEDIUM:
                raise
            raise CorruptionError(
                f"{path}, the record of a linked root, can't be read: {error.strerror}; {_AGAIN}"
            ) from error


class _Format(msgspec.Struct):
    format: int


def _mark(folder: str, name: str, *, there: bool) -> None:
    """Make an empty file, or remove it; durable."""
    path = os.path.join(folder, name)
    if there:
        write_atomically(path, b"", mode=0o600)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        sync_directory(folder)


def make_private(*folders: str) -> None:
    """Make folders for their owner only, the outermost first; one that an older release has left open is closed.

    `os.makedirs` does that for the last one only: others could list what is linked.
    """
    os.makedirs(os.path.dirname(folders[0]), mode=0o700, exist_ok=True)
    for folder in folders:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            found = os.stat(folder)
            if found.st_uid == os.geteuid() and found.st_mode & 0o077:
                os.chmod(folder, 0o700)


def encoded_path(path: bytes) -> str:
    """A path as root.json holds it."""
    return quote_from_bytes(path)


def xdg_folder(environment: Mapping[str, str], name: str, default: str) -> str:
    """A folder by XDG rules: a variable that is unset or relative counts as unset."""
    value = environment.get(name, "")
    return value if os.path.isabs(value) else default
