"""From a linked root to the objects a cycle works with."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from blockfs.blocks.directory import BlockDirectory
from blockfs.errors import NotFoundError as BlocksNotFoundError
from blockfs.runtime.output import note, shown
from syncer.blocks.roots import OtherRoots
from syncer.cli.registry.roots import LinkedRoot, Registry, make_private
from syncer.core.conflict import conflict_name
from syncer.core.model import ROOT, Content, Kind, Node
from syncer.core.planner.merge import Policy
from syncer.errors import NotFoundError, UsageError
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.root import LocalDirectory
from syncer.local.options import RootOptions
from syncer.local.safe_open import DIRECTORY_FLAGS
from syncer.local.verbs.retention import Retention
from syncer.local.verbs.trash import Trash
from syncer.ports.localvalues import CopyName
from syncer.ports.state import State
from syncer.state.statedb import StateDB

if TYPE_CHECKING:  # imported where a volume, or a server, is concerned: a twentieth of a second each
    from syncer.blocks.recent import RecentBlocks
    from syncer.engine.root_state import RootState
    from syncer.engine.share.lankey import LanKeyKeeper
    from syncer.engine.share.repositorykey import RepositoryKey
    from syncer.engine.share.sharing import SharedRoot, ShareKeeper
    from syncer.local.sharedblocks import SharedLists, SharedReader
    from syncer.local.volume.root import BlockfsRoot
    from syncer.ports.remote import Remote
    from syncer.remote.http.retry import RetryPolicy
    from syncer.remote.http.transport import HttpSettings

Local: TypeAlias = "LocalDirectory | BlockfsRoot"
"""A root's local side."""

TOKEN_VARIABLE: Final = "BLOCKSYNC_TOKEN"  # noqa: S105 - the name of a variable


def policy_now() -> Policy:
    """This host and this moment, as conflict copies name them."""
    return Policy(host=socket.gethostname(), utc=datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"))


def open_state(root: LinkedRoot) -> StateDB:
    """The root's state, to work on; see `open_state_of`."""
    return open_state_of(root.path, root.state)


def open_state_of(path: bytes, state: str) -> StateDB:
    """The state at `state` of the root at `path`, to work on.

    A cycle of the daemon is waited for: it began by itself, and ends by itself.

    Raises:
        LockedError: Another command works on it.
    """

    def is_the_daemon(holder: int | None) -> bool:
        from syncer.watch import control  # noqa: PLC0415 - where somebody else has it

        live = control.live(Registry(os.environ).socket)
        if live is None or live.pid != holder:
            return False
        note(f"waiting for the cycle of `blocksync watch` on {shown(path)}")
        return True

    return StateDB.open(state, patience=is_the_daemon)


def copy_name(policy: Policy) -> CopyName:
    """Names of conflict copies that become necessary while applying."""

    def name_copy(name: bytes, content: Content | None, taken: Container[bytes]) -> bytes:
        kind = Kind.DIRECTORY if content is None else Kind.FILE
        node = Node(parent=ROOT, name=name, kind=kind, content=content)
        return conflict_name(node, host=policy.host, utc=policy.utc, taken=taken)

    return name_copy


@contextmanager
def open_trash(path: bytes, block_size: int, keep_trash_s: float, state: State) -> Iterator[Trash]:
    """The trash of the ordinary folder at `path`, to judge what is pending in it; under the lock of its state.

    Raises:
        OSError: It can't be opened.
    """
    root = os.open(path, DIRECTORY_FLAGS)
    try:
        private = PrivateFolder(root)
        try:
            yield Trash(root, private.trash, block_size, copy_name(policy_now()), Retention(keep_trash_s, state))
        finally:
            private.close()
    finally:
        os.close(root)


def open_local(
    root: LinkedRoot, policy: Policy, state: State, *, from_snapshot: bool = False, only_looking: bool = False
) -> Local:
    """Open the local side.

    Args:
        root: Which.
        policy: Names conflict copies.
        state: What is kept between cycles.
        from_snapshot: Observe everything as of one instant; mounted volumes only.
        only_looking: Nothing will be changed, and somebody else may be at work on it.

    Raises:
        RootIdentityError: It is not there, or is not the one that was linked.
        UsageError: A snapshot of an ordinary folder.
    """
    record = root.record
    options = RootOptions(
        block_size=record.block_size,
        lists=root.lists,
        state=state,
        patterns=root.ignore_patterns,
        parts=record.parts,
        keep_trash_s=record.keep_trash_s,
        only_looking=only_looking,
    )
    if record.folder is None:
        from syncer.local.volume.root import BlockfsRoot  # noqa: PLC0415 - see above

        assert record.volume_uuid is not None
        return BlockfsRoot(root.path, record.volume_uuid, options, from_snapshot=from_snapshot)
    if from_snapshot:
        text = f"{os.fsdecode(root.path)} is an ordinary folder; --snapshot needs a mounted blocksync volume"
        raise UsageError(text)
    blocks = None if only_looking else lambda: _open_blocks(root)
    return LocalDirectory(root.path, record.folder, options, copy_name(policy), blocks)


def open_share(root: LinkedRoot, settings: HttpSettings | None = None, policy: RetryPolicy | None = None) -> Remote:
    """A client of the share that a root is linked to; nothing is sent yet.

    Args:
        root: Which.
        settings: How to talk; None: as its record says.
        policy: Of each request; None: patient.

    Raises:
        NotFoundError: What `link` kept to open it is gone.
        CorruptionError: It is damaged.
        UsageError: A repository's store can't be found any more.
    """
    from syncer.remote.open import Way, open_remote  # noqa: PLC0415 - see above

    return open_remote(
        Way(
            url=root.record.url,
            secret=root.secret(),
            settings=root.record.settings if settings is None else settings,
            policy=policy,
            memory=root.head,
            cache=root.cache,
            token_file=root.store_token,
        )
    )


def other_roots(root: LinkedRoot) -> OtherRoots:
    """The block directories of the other linked roots, as far as they are there: a source of blocks.

    Roots of one container on one machine are left out: they are there to be two devices, and get everything from the
    server as two devices do.
    """

    def paths() -> Iterator[str]:
        from syncer.local.volume.mount import find_mount  # noqa: PLC0415 - where something is to be fetched

        for other in Registry(os.environ).look().roots:
            if other.record.url == root.record.url:
                continue
            if other.record.folder is not None:
                yield other.blocks
            elif (mount := find_mount(other.path)) is not None:
                yield os.fsdecode(os.path.join(mount.source, b"blocks"))

    return OtherRoots(paths, root.record.block_size)


def _open_blocks(root: LinkedRoot) -> BlockDirectory:
    """The root's block directory; a lost one is made anew: it only saves transfers."""
    try:
        return BlockDirectory.open(root.blocks)
    except BlocksNotFoundError:
        make_private(os.path.dirname(root.data), root.data)
        return BlockDirectory.create(root.blocks, block_size=root.record.block_size)


def share_keeper(root: LinkedRoot, state: RootState, local: SharedLists, recent: RecentBlocks | None) -> ShareKeeper:
    """What keeps a root's index for other devices beside its cycles, and ends what a cycle got lately."""
    from syncer.engine.share.sharing import ShareKeeper  # noqa: PLC0415 - where a cycle runs

    return ShareKeeper(root.share_index, state, local, root.record.block_size, recent)


def key_of_share(root: LinkedRoot) -> LanKeyKeeper | RepositoryKey:
    """What knows the key by which devices of a root's share know each other on the LAN.

    Raises:
        NotFoundError, CorruptionError: What `link` kept of a repository is gone, or damaged.
    """
    if not root.in_repository:
        return key_keeper(root)
    from syncer.engine.share.repositorykey import RepositoryKey  # noqa: PLC0415 - where somebody is asked
    from syncer.remote.repository.access import Access  # noqa: PLC0415 - likewise

    return RepositoryKey(root.record.url, Access.read(root.secret()).keys.lan)


def key_keeper(root: LinkedRoot) -> LanKeyKeeper:
    """What looks after the key of a container's share. Roots with another `?prefix=` are of another share."""
    from syncer.engine.share.lankey import LanKeyKeeper  # noqa: PLC0415 - where a cycle runs
    from syncer.state.keyfile import KeyFile  # noqa: PLC0415 - likewise

    return LanKeyKeeper(root.record.url, KeyFile(root.lan_key))


def shared_root(root: LinkedRoot) -> SharedRoot:
    """A root as other devices of its share may ask it; the caller's to close."""
    from syncer.engine.share.sharing import SharedRoot  # noqa: PLC0415 - where somebody is served
    from syncer.local.sharedblocks import FolderBlocks, VolumeBlocks  # noqa: PLC0415 - likewise

    record = root.record
    reader: SharedReader
    if record.folder is not None:
        reader = FolderBlocks(root.path, record.folder, record.block_size)
    else:
        assert record.volume_uuid is not None
        reader = VolumeBlocks(root.path, record.volume_uuid, record.block_size, root.lists)
    return SharedRoot(record.url, root.state, root.share_index, reader, lambda: root.paused)


def read_token(token_file: str | None, environment: Mapping[str, str], account: str) -> str:
    """The token to use: of a token file the account's first one, else the first one; without a file the environment's.

    Raises:
        NotFoundError: No such file.
        UsageError: No token anywhere.
    """
    if token_file is None:
        token = environment.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise UsageError(f"no token: give --token-file FILE (lines TOKEN ACCOUNT) or set {TOKEN_VARIABLE}")
        return token
    try:
        with open(token_file, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IROTH | stat.S_IWOTH):
                note(f"warning: {token_file} holds a token, and every user can read it; chmod o= {token_file}")
            lines = [words for line in file if (words := line.split()) and not words[0].startswith("#")]
    except FileNotFoundError:
        raise NotFoundError(f"token file {token_file} does not exist") from None
    except UnicodeDecodeError:
        raise UsageError(f"token file {token_file} is no text: expected lines TOKEN ACCOUNT") from None
    if not lines:
        raise UsageError(f"token file {token_file} holds no token: expected lines TOKEN ACCOUNT")
    return next((line[0] for line in lines if line[1:2] == [account]), lines[0][0])
