"""Telling a service manager how a process is: the datagrams of sd_notify(3).

A service of `Type=notify` counts as started when it says READY=1, so that what depends on it never comes too early.
"""

from __future__ import annotations

import os
import socket
import time

from blockfs.runtime.logs import Log

log = Log()


class ServiceManager:
    """Who started this process and waits to hear from it; nobody, if there is no address.

    A notification that can't be delivered is logged and forgotten: it must not stop a filesystem.
    """

    def __init__(self, address: str | None) -> None:
        """Remember whom to tell.

        Args:
            address: Value of NOTIFY_SOCKET: a path, or "@" and an abstract name. None or empty: nobody.
        """
        self._address = address
        self._is_stopping = False

    def ready(self, status: str) -> None:
        """The service serves. Tells the process id too: it may not be the process that was started."""
        self._tell("READY=1", f"MAINPID={os.getpid()}", f"STATUS={_one_line(status)}")

    def stopping(self, status: str) -> None:
        """The service is about to end. Told once."""
        if not self._is_stopping:
            self._is_stopping = True
            self._tell("STOPPING=1", f"STATUS={_one_line(status)}")

    def reloading(self) -> None:
        """The configuration is read again; `ready` says when that is done."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def alive(self) -> None:
        """The service is not stuck (WatchdogSec=)."""
        self._tell("WATCHDOG=1")

    def _tell(self, *assignments: str) -> None:
        if not self._address:
            return
        # An abstract name begins with a NUL byte; environment variables can't hold one, so "@" stands for it.
        address = os.fsencode(self._address)
        name = b"\0" + address[1:] if address.startswith(b"@") else address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.sendto("\n".join(assignments).encode("utf-8", "backslashreplace"), name)
        except OSError as error:
            log.warning("notify.failed", address=self._address, reason=str(error))


def _one_line(text: str) -> str:
    """A newline would begin another assignment."""
    return text.replace("\n", " ")
