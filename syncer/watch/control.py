"""The daemon's socket: `status` asks how it stands, `pause`, `resume`, `link` and `unlink` tell that something changed.

This is the commands' side of it, which needs no event loop; `answers.py` is the daemon's.

A Unix stream socket beside the registry, for its own user. One JSON line each way: `{"ask":"live"}` is answered once,
`{"ask":"follow"}` whenever something changed, `{"ask":"reload"}` and `{"ask":"sync","uuid":…}` with `{"done":true}`.
`{"ask":"peers"}` is answered once, `{"ask":"unban","who":…}` with `{"lifted":n}`. After `{"ask":"blocks","uuid":…}` the
connection speaks as `peer.relay` has it. `{"ask":"ui","listen":…}` and `{"ask":"ui-close"}` are
answered with a `Page`. A daemon of an older release hangs up at a question that it does not know.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from blockfs.exitcodes import ExitCode
from syncer.errors import NotFoundError, SyncerError
from syncer.watch.live import DaemonLive

if TYPE_CHECKING:
    from syncer.watch.lan import PeersLive

T = TypeVar("T")

_MAX_LINE_BYTES: Final = 1 << 24  # a thousand roots take 1 MiB
TIMEOUT_S: Final = 10.0


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked."""

    ask: Literal["live", "follow", "reload", "sync", "peers", "unban", "blocks", "ui", "ui-close"]
    uuid: str = ""
    who: str = ""
    listen: str = ""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to "reload" and "sync"."""

    done: bool


class Lifted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to "unban"."""

    lifted: int


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to "ui" and "ui-close".

    Attributes:
        address: Where the page is, or was; empty: there is none.
        link: Opens it, once, within some minutes.
        refused: Why it was not opened; empty: it was.
        exit_code: For who asked.
    """

    address: str = ""
    link: str = ""
    refused: str = ""
    exit_code: int = ExitCode.DONE


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the page's process: see `page.py`.

    Attributes:
        address: Where it is, as a browser's address line has it.
        listen: HOST:PORT.
        refused: Why it ended instead.
        exit_code: For who asked.
    """

    address: str = ""
    listen: str = ""
    refused: str = ""
    exit_code: int = ExitCode.DONE


class OlderDaemonError(SyncerError):
    """The daemon hung up at a question that releases before this one do not know."""

    def __init__(self) -> None:
        super().__init__("the running `blocksync watch` is of an older release; start it anew")


class NotWatchingError(NotFoundError):
    """No daemon answers."""

    def __init__(self) -> None:
        super().__init__("no `blocksync watch` is running")


class _HungUpError(NotWatchingError):
    """It took the question and gave no answer: it ended just now, or does not know the question."""


def live(path: str) -> DaemonLive | None:
    """How the daemon stands; None: there is none."""
    try:
        return next(_asked(path, Question(ask="live"), DaemonLive))
    except NotWatchingError:
        return None


def follow(path: str) -> Iterator[DaemonLive]:
    """How it stands, again and again.

    Raises:
        NotWatchingError: There is none.
    """
    return _asked(path, Question(ask="follow"), DaemonLive)


def reload(path: str) -> bool:
    """Tell the daemon to read the registry again. Returns whether there is one."""
    try:
        return next(_asked(path, Question(ask="reload"), Done)).done
    except NotWatchingError:
        return False


def sync(path: str, uuid: str) -> bool:
    """Ask for a look at everything of one root now. Returns whether it is watched."""
    try:
        return next(_asked(path, Question(ask="sync", uuid=uuid), Done)).done
    except NotWatchingError:
        return False


def peers(path: str) -> PeersLive:
    """How the daemon stands on the LAN.

    Raises:
        NotWatchingError: There is none.
        OlderDaemonError: It knows no peers.
    """
    from syncer.watch.lan import PeersLive as Kind  # noqa: PLC0415 - with it comes all that talks with peers

    return _known(path, Question(ask="peers"), Kind)


def peers_line(path: str) -> bytes:
    """The same as `peers`, as it came: for who does not want to load all that talks with peers.

    Raises:
        NotWatchingError, OlderDaemonError: See `peers`.
    """
    return bytes(_known(path, Question(ask="peers"), msgspec.Raw))


def unban(path: str, who: str = "") -> int:
    """Lift bans; returns how many there were.

    Args:
        path: The daemon's socket.
        who: See `Exchange.unban`.

    Raises:
        NotWatchingError, OlderDaemonError: See `peers`.
    """
    return _known(path, Question(ask="unban", who=who), Lifted).lifted


def open_page(path: str, listen: str) -> Page:
    """Have the daemon serve its page; returns a link to it.

    Args:
        path: The daemon's socket.
        listen: HOST:PORT; empty: where it listens already, else the usual place.

    Raises:
        NotWatchingError, OlderDaemonError: See `peers`.
    """
    return _known(path, Question(ask="ui", listen=listen), Page)


def close_page(path: str) -> Page:
    """Have the daemon end its page; who looks at it is signed out.

    Raises:
        NotWatchingError, OlderDaemonError: See `peers`.
    """
    return _known(path, Question(ask="ui-close"), Page)


def question(ask: Literal["blocks"], uuid: str) -> bytes:
    """A question as it goes over the socket, for who goes on with the connection."""
    return msgspec.json.encode(Question(ask=ask, uuid=uuid)) + b"\n"


def _known(path: str, question: Question, kind: type[T]) -> T:
    """One answer to a question that older daemons do not know, or answer otherwise."""
    try:
        return next(_asked(path, question, kind))
    except msgspec.ValidationError:
        raise OlderDaemonError from None
    except _HungUpError:
        if live(path) is None:
            raise
        raise OlderDaemonError from None


def _asked(path: str, question: Question, kind: type[T]) -> Iterator[T]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            with short(path) as address:
                connection.connect(address)
            connection.sendall(msgspec.json.encode(question) + b"\n")
        except OSError:
            raise NotWatchingError from None
        connection.settimeout(None)
        with connection.makefile("rb") as lines:
            while (line := _line(lines)).endswith(b"\n"):
                yield msgspec.json.decode(line, type=kind)
    raise _HungUpError


def _line(lines: IO[bytes]) -> bytes:
    """The next one; of a daemon that was killed nothing, or a part."""
    try:
        return lines.readline(_MAX_LINE_BYTES)
    except ConnectionError:
        return b""


@contextlib.contextmanager
def short(path: str) -> Iterator[str]:
    """An address for a path of any length: a socket's may have 107 bytes."""
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)
