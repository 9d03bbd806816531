"""Errors of the syncer: one root, typed fields, an exit code for the command line.

Only `cli/` turns them into exit codes. `retryable` belongs to the class: the adapter that talks to the other side
decides which class to raise, `http/retry.py` acts on it once. Messages name the thing, what was expected and what
to do.
"""

from __future__ import annotations

from typing import ClassVar, Final

from blockfs.errors import BlockfsError, ExpectedError
from blockfs.errors import CorruptionError as BlocksCorruptError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.units import counted


class SyncerError(ExpectedError):
    """Root of all expected failures of the syncer.

    Attributes:
        retryable: The same request may succeed later without anybody doing anything.
    """

    retryable: ClassVar[bool] = False


EXPECTED: Final = (SyncerError, BlockfsError, OSError)
"""What may go wrong without a fault of the program. All else is a bug, and ends a command."""


class UsageError(SyncerError):
    """An argument's value is not acceptable: says which, what was expected, and what to do."""

    exit_code = ExitCode.USAGE


class UnsafeNameError(SyncerError):
    """A name that would leave the root or name something reserved: absolute, `..`, empty segment, NUL, `.blocksync`.

    Such a name is refused at the edge, before anything is created under it; everything else goes on (exit 3).
    """

    exit_code = ExitCode.PARTLY_DONE

    def __init__(self, name: bytes, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"unsafe name {_shown(name[:200])}: {reason}; nothing was done with it")


class UnholdableError(SyncerError):
    """The other side can't hold what is to be put there; that node is left alone (exit 3)."""

    exit_code = ExitCode.PARTLY_DONE

    def __init__(self, path: bytes, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{_shown(path[:200])}: {reason}; left as it is on the other side")


class ConflictOnRemoteError(SyncerError):
    """The remote object is not what the plan was made for: the action is dropped, the next cycle plans anew."""

    exit_code = ExitCode.PARTLY_DONE

    def __init__(self, path: bytes, expected: str, found: str) -> None:
        self.path = path
        self.expected = expected
        self.found = found
        super().__init__(
            f"{_shown(path)} changed on the server: expected {expected}, found {found}; "
            "the next reconcile looks at it again"
        )


class PreconditionFailedError(ConflictOnRemoteError):
    """The server itself refused a conditional request (412): somebody else was faster."""


class LocalChangedError(SyncerError):
    """A local file is not what the plan was made for: the action is dropped, the next cycle plans anew."""

    exit_code = ExitCode.PARTLY_DONE

    def __init__(self, path: bytes, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{_shown(path)} changed meanwhile: {reason}; the next reconcile looks at it again")


class LongRulesError(LocalChangedError):
    """A file of ignore rules has more than anybody reads: its folder is left alone as if it could not be read."""

    def __init__(self, path: bytes, most_bytes: int) -> None:
        super().__init__(path, f"it has more than {most_bytes} bytes")
        self.args = (f"{_shown(path)} can't be read: {self.reason} of patterns; make it shorter",)


class NotFoundError(SyncerError):
    """A root, container or object that a command names does not exist."""

    exit_code = ExitCode.NOT_FOUND


class LockedError(SyncerError):
    """Another process is working on this root."""

    exit_code = ExitCode.LOCKED

    def __init__(self, what: str, holder_pid: int | None) -> None:
        self.what = what
        self.holder_pid = holder_pid
        holder = f"process {holder_pid}" if holder_pid else "another process"
        super().__init__(f"{what} is in use by {holder}; wait for it or stop it")


class AuthError(SyncerError):
    """The server refused the token (401), or the account may not do this (403)."""

    exit_code = ExitCode.AUTH


class ForbiddenError(AuthError):
    """The account may not do this with this object (403): in a cycle, that object's failure."""


class NotAllowedError(SyncerError):
    """The host does not let us read or write something of ours: mostly another user's.

    Attributes:
        path: Of it.
    """

    exit_code = ExitCode.AUTH

    def __init__(
        self, path: str, reason: str, likely: str = "it belongs to another user, or its permissions were changed"
    ) -> None:
        self.path = path
        super().__init__(f"{path}: {reason}; {likely}")


class RemoteUnavailableError(SyncerError):
    """The server cannot be reached, answers 5xx, or ended the connection. Trying again may help.

    Attributes:
        retry_after_s: So long the server asks us to wait (Retry-After); 0 if it does not.
    """

    exit_code = ExitCode.REMOTE_UNREACHABLE
    retryable = True
    retry_after_s: float = 0.0


class FormatTooNewError(SyncerError):
    """The state was written by a newer blocksync."""

    exit_code = ExitCode.FORMAT_TOO_NEW

    def __init__(self, path: str, found: int, supported: int) -> None:
        self.path = path
        self.found = found
        self.supported = supported
        super().__init__(f"{path} has format {found}, this blocksync knows up to {supported}: use a newer blocksync")


class CorruptionError(SyncerError):
    """Stored or received data is not what it claims to be. Nothing is overwritten when this is raised."""

    exit_code = ExitCode.CORRUPTION


class CutObjectError(CorruptionError):
    """An object's last block has the id of more than the object has: a Pithos leaves that as it was when it cuts one.

    Attributes:
        data: What the object has of that block. Proved: the server has the whole block, and it begins so.
    """

    def __init__(self, path: bytes, data: bytes) -> None:
        self.path = path
        self.data = data
        super().__init__(f"{_shown(path)} was cut on the server, and has the hash of what it was before")


class DamagedObjectError(CorruptionError):
    """An object of a repository is not what its name, its key or the object that led to it says.

    Attributes:
        name: Of the object, as the store knows it.
        reason: Completes "the object NAME of the repository …".
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"the object {name[:200]} of the repository {reason}")


class SafetyStopError(SyncerError):
    """The plan would delete so much that a person must agree first.

    Attributes:
        digest: Names exactly this plan; `--allow-deletes DIGEST` consents to it and to no other.
        deletions: Nodes that would be deleted, over both sides.
        reason: Which limit was met, in words.
    """

    exit_code = ExitCode.SAFETY_STOP

    def __init__(self, digest: str, deletions: int, reason: str, root: str = "ROOT") -> None:
        self.digest = digest
        self.deletions = deletions
        self.reason = reason
        super().__init__(
            f"safety stop: {reason}. Nothing was done. If that is what you want, run: "
            f"blocksync reconcile {root} --allow-deletes {digest}"
        )


class RolledBackError(SyncerError):
    """A repository is older than what this device has seen of it: its store was put back from a backup, perhaps.

    All that came since would look deleted. Who agrees links anew, which merges both sides and deletes nothing.
    """

    exit_code = ExitCode.SAFETY_STOP

    def __init__(self, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        super().__init__(
            f"safety stop: the repository is older than it was: expected {expected}, found {found}. Nothing was done. "
            "If its store was put back from a backup, run: blocksync link ROOT URL --relink (that merges both sides "
            "and deletes nothing)"
        )


class HeadsMissingError(SyncerError):
    """A repository has commits, and no device has a head: its store has lost them, and the share would look empty."""

    exit_code = ExitCode.SAFETY_STOP

    def __init__(self, what: str) -> None:
        super().__init__(
            f"safety stop: the repository looks empty, and is not: {what}. Nothing was done. Put what is missing back "
            "from a copy of the store. If there is none, run: blocksync link ROOT URL --relink (that begins the share "
            "anew with the files of ROOT, and deletes nothing)"
        )


class PlanChangedError(SyncerError):
    """A saved plan does not hold any more. Nothing was done.

    Attributes:
        stale: Path and reason of each action that would not be done any more.
    """

    exit_code = ExitCode.PLAN_CHANGED

    def __init__(self, stale: list[tuple[str, str]], total: int) -> None:
        self.stale = stale
        first = "; ".join(f"{path}: {reason}" for path, reason in stale[:3])
        of = counted(total, "action", "actions")
        super().__init__(
            f"{len(stale)} of {of} of the saved plan would not be done any more, so nothing was done: {first}"
            f"{'; …' if len(stale) > 3 else ''}. Make a new plan with `blocksync plan`"
        )


class NoSpaceError(SyncerError):
    """The local filesystem, the state's map or the server's disk is full."""

    exit_code = ExitCode.NO_SPACE


class OverQuotaError(NoSpaceError):
    """The server takes this as too large (413): a quota has no room for it, or nobody lets so long a request through.

    It concerns what was sent and nothing else: a smaller file, a deletion or a pull may well go through.
    """


class RootIdentityError(SyncerError):
    """The folder (or container) under this name is not the one that was linked: unmounted, replaced, or restored.

    Nothing is compared in that state, because everything would look deleted.
    """

    exit_code = ExitCode.ROOT_IDENTITY

    def __init__(self, what: str, expected: str, found: str) -> None:
        self.what = what
        self.expected = expected
        self.found = found
        first = "see that the right server answers" if what == "the container" else "mount it"
        super().__init__(
            f"{what} is not the one that was linked: expected {expected}, found {found}; "
            f"{first}, or run `blocksync link ROOT URL --relink` to merge it anew (that deletes nothing)"
        )


ONE_NODE: Final = (
    ConflictOnRemoteError,
    LocalChangedError,
    UnsafeNameError,
    CorruptionError,
    BlocksCorruptError,
    OSError,
    UnholdableError,
    ForbiddenError,  # not its parent: without a token nothing goes on
    OverQuotaError,  # not its parent: a disk that is full is full for all
)
"""Errors that concern one node: named, isolated, tried again in the next cycle. All others end the cycle."""


def _shown(path: bytes) -> str:
    """A path as messages have it; as `runtime.output.shown`, which lies above."""
    return path.decode("utf-8", "backslashreplace")
