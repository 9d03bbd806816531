"""The control socket's handler: each request of a conversation goes to its answer, and its failures have an owner."""

from __future__ import annotations

from blockfs.control import protocol
from blockfs.engine.fatal import Doing
from blockfs.errors import EXPECTED, BlockfsError, ReadOnlyError
from blockfs.runtime.output import shown
from blockfs.service.answers.registry import ANSWERS, Effect
from blockfs.service.conversation import Conversation, Mount


class BugError(BlockfsError):
    """A request that changes nothing met an error that nobody expected: the mount goes on."""

    def __init__(self, doing: str, error: Exception) -> None:
        super().__init__(
            f"a bug ({type(error).__name__} in {doing}): nothing was changed, and the mount goes on; please report "
            "what mount.log in the volume says"
        )


class MountHandler(Mount):
    """The `Handler` of a mount. From the control server's threads, without the engine's lock."""

    def session(self) -> MountSession:
        """Begin a conversation."""
        return MountSession(self)

    def crashed(self, error: BaseException, doing: str) -> None:
        """Without the server's threads the mount could not be ended in order: end it now."""
        self.filesystem.fatal.strike(error, doing)


class MountSession(Conversation):
    """One connection's conversation with the mount."""

    def answer(self, request: protocol.Request) -> protocol.Reply:
        """Do what is asked.

        Raises:
            ReadOnlyError: It would change the volume, which is mounted read-only.
            AbandonedError: A bug was met, which may have left half a change.
            BugError: A bug was met, which changed nothing.
        """
        answer, effect = ANSWERS[type(request)]
        changes = effect is Effect.CHANGES or (isinstance(request, protocol.Shutdown) and request.seal)
        if self.filesystem.read_only and changes:
            place = shown(self.mount.mountpoint)
            raise ReadOnlyError(f"{place} is mounted read-only; unmount it and mount it without `--read-only` first")
        doing = Doing(f"the request {type(request).__name__}", looks=effect is Effect.LOOKS)
        try:
            with doing:
                return answer(self, request)
        except EXPECTED:
            raise
        except Exception as error:
            self.filesystem.fatal.met(error, doing)
            self.filesystem.fatal.check()
            raise BugError(doing.what, error) from error
