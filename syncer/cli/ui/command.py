"""`blocksync ui`: the page that the daemon serves to its user."""

from __future__ import annotations

import html
import os
import shutil
import tempfile

import click

from blockfs.exitcodes import ExitCode
from blockfs.runtime.output import json_line, note, tell
from syncer.cli.registry.roots import Registry
from syncer.errors import NotFoundError, UsageError
from syncer.watch import control

_OPENERS = ("xdg-open", "x-www-browser", "sensible-browser")


@click.command("ui")
@click.option("--listen", metavar="HOST:PORT", help="Of this machine only; port 0: any.  [default: 127.0.0.1:8801]")
@click.option("--open", "is_opened", is_flag=True, help="Show the page in your browser, instead of printing its link.")
@click.option("--close", "is_closed", is_flag=True, help="End the page; whoever looks at it is signed out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(listen: str | None, is_opened: bool, is_closed: bool, as_json: bool) -> int:
    """Have `blocksync watch` serve its page, and print a link to it.

    The link opens the page once, within ten minutes; ask for another one at any time. The page shows how the roots
    stand, what waits and why, and does what the commands do. It ends with the daemon.
    """
    registry = Registry(os.environ)
    if is_closed:
        if listen is not None or is_opened:
            raise UsageError("--close ends the page: it goes with neither --listen nor --open")
        page = control.close_page(registry.socket)
        if as_json:
            json_line("ui", {"address": page.address, "link": None})
        else:
            note(f"closed {page.address}" if page.address else "no page was open")
        return ExitCode.DONE
    try:
        page = control.open_page(registry.socket, listen or "")
    except control.NotWatchingError:
        raise NotFoundError("no `blocksync watch` is running, and it serves the page: start it first") from None
    if page.refused:
        note(f"blocksync: {page.refused}")
        if as_json:
            json_line("error", {"root": None, "exit_code": page.exit_code, "message": page.refused})
        return page.exit_code
    if is_opened:
        _show(page.link)
    if as_json:
        json_line("ui", {"address": page.address, "link": None if is_opened else page.link})
    elif is_opened:
        note(f"opened {page.address}")
    else:
        tell(page.link)
    return ExitCode.DONE


def _show(link: str) -> None:
    """Start a browser. Its command line can be read by everybody on this machine: it is given a file with the link.

    Raises:
        NotFoundError: There is no browser that could be started.
    """
    opener = next((found for name in _OPENERS if (found := shutil.which(name)) is not None), None)
    if opener is None:
        raise NotFoundError(
            f"no browser was found ({', '.join(_OPENERS)}); `blocksync ui` prints a link to open yourself"
        )
    folder = os.environ.get("XDG_RUNTIME_DIR") or None
    with tempfile.NamedTemporaryFile("w", prefix="blocksync-", suffix=".html", dir=folder, delete=False) as file:
        address = html.escape(link, quote=True)
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}"><title>blocksync</title>\n')
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    # Nobody waits for it: it may be the browser itself, which stays.
    os.posix_spawn(opener, [opener, file.name], os.environ, file_actions=nowhere, setsid=True)
