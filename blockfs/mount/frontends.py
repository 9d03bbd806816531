"""Which front-end serves a mount: chosen by name, loaded late.

Only the chosen one is loaded: a host without pyfuse3 can mount by the kernel's own protocol, and then nobody pays for
pyfuse3.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Protocol

from blockfs.engine.filesystem import Filesystem
from blockfs.errors import KernelTooOldError, MountError
from blockfs.fuse.answering import Limit
from blockfs.mount.choice import Choice
from blockfs.runtime.logs import Log
from blockfs.service.conversation import Kernel
from blockfs.service.counters import Counters

log = Log()


class Frontend(Kernel, Protocol):
    """A mount, as the mount process uses it.

    Attributes:
        is_unmounted: The kernel has let go of it: nobody waits for an answer any more.
        why_not_native: Why the kernel reads and writes no files of the host itself; None: it does. Known once mounted.
    """

    @property
    def is_unmounted(self) -> bool:
        """See the class."""

    @property
    def why_not_native(self) -> str | None:
        """See the class."""

    def mount(self, volume: bytes, mountpoint: bytes, *, flags: frozenset[str]) -> None:
        """Mount. Requests wait until `serve` runs."""

    async def serve(self) -> None:
        """Answer requests until the kernel has unmounted or `terminate` is called."""

    async def keep_dirty_low(self, limit: Limit) -> None:
        """Lower the limit of dirty pages while fsyncs wait beside a stream; until cancelled."""

    def terminate(self) -> None:
        """Make `serve` return while the mount is still there. From any thread."""

    def abandon(self) -> None:
        """Make `serve` return, if it runs. From any thread, whatever it holds: nothing is waited for."""

    def close(self) -> None:
        """Free the connection. It is for the caller to have unmounted."""

    def forget_pages(self, ino: int) -> None:
        """Have the kernel drop its pages of a file. It writes those first that were changed: through this mount."""


Load = Callable[[Filesystem, Counters], Frontend]


def loaded(choice: Choice) -> Load:
    """The front-end to begin with.

    Raises:
        MountError: It is not installed.
    """
    if choice is not Choice.PYFUSE3:
        from blockfs.fuse.kernel.frontend import KernelFrontend  # noqa: PLC0415 - see the module

        return KernelFrontend
    try:
        from blockfs.fuse.pyfuse3_frontend import Pyfuse3Frontend  # noqa: PLC0415 - see the module
    except ModuleNotFoundError as error:
        raise MountError(
            f"{error.name} is not installed, which --frontend pyfuse3 needs: install blocksync with its extra `fuse` "
            "(`make install EXTRAS=fuse`; it needs libfuse3-dev, pkg-config and a compiler), or mount with "
            "--frontend kernel, which needs none of it"
        ) from None
    return Pyfuse3Frontend


def after_refusal(choice: Choice, refusal: KernelTooOldError) -> Load:
    """The front-end to go on with, because the kernel is too old for our own one.

    Raises:
        KernelTooOldError: There is none.
    """
    if choice is not Choice.AUTO or importlib.util.find_spec("pyfuse3") is None:
        raise refusal
    log.warning("mount.kernel_too_old", reason=str(refusal))
    return loaded(Choice.PYFUSE3)
