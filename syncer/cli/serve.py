"""`blocksync serve`: an object server for a folder."""

from __future__ import annotations

import logging
import os
import sys

import click
import structlog

from blockfs.runtime import logs, output
from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.garbage import look_rarely
from blockfs.runtime.notify import ServiceManager
from blockfs.runtime.units import parse_size
from syncer.server import process
from syncer.server.folder import ServerFolder
from syncer.server.store import Store
from syncer.server.tokens import make_token_file, read_tokens


@click.command("serve")
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--listen", default="127.0.0.1:8800", show_default=True, help="HOST:PORT; port 0: any free one.")
@click.option(
    "--token-file", type=click.Path(dir_okay=False), help="Lines TOKEN ACCOUNT [QUOTA]. Default: DIRECTORY/token, made."
)
@click.option("--block-size", help="For a new DIRECTORY: a power of two, 4KiB to 4MiB.  [default: 64KiB]")
@click.option("--json", "as_json", is_flag=True, help="Say that it is ready as a JSON line.")
@click.option("--verbose", is_flag=True, help="Log each request.")
def command(
    directory: str, listen: str, token_file: str | None, block_size: str | None, as_json: bool, verbose: bool
) -> int:
    """Serve the object store in DIRECTORY over HTTP, until SIGTERM or Ctrl-C.

    DIRECTORY is made if it is missing. TLS is a reverse proxy's work: listen on a loopback address.
    """
    look_rarely()
    logs.log_to(sys.stderr)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if verbose else logging.WARNING)
    )
    size_bytes = None if block_size is None else parse_size(block_size)
    process.parse_address(listen)  # what is wrong with the command line is told before a folder is made
    if token_file is not None:
        read_tokens(token_file)
    with Store(ServerFolder.open(directory, block_size=size_bytes)) as store:
        if token_file is None:
            make_token_file(store.token_file)
        token_path = token_file or store.token_file
        with process.bind(listen) as listener:
            address = process.url(listener)
            manager = ServiceManager(os.environ.pop("NOTIFY_SOCKET", None))

            def ready() -> None:
                _ready(address, token_path, as_json=as_json)
                manager.ready(f"listening on {address}")

            interrupted = process.serve(
                store, lambda: read_tokens(token_path), listener, ready, lambda: manager.stopping("closing the store")
            )
    return ExitCode.INTERRUPTED if interrupted else ExitCode.DONE


def _ready(address: str, token_path: str, *, as_json: bool) -> None:
    """The lines that say so; whoever started us waits for `listening on`, which comes last."""
    if as_json:
        output.json_line("listening", {"url": address, "token_file": token_path})
        return
    output.note(f"tokens: {token_path}")
    click.echo(f"listening on {address}")
