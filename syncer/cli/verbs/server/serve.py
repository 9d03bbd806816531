"""`blocksync serve`: an object server for a folder."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import stat
import sys

import click

from blockfs.exitcodes import ExitCode
from blockfs.runtime import logs, output
from blockfs.runtime.notify import ServiceManager
from blockfs.runtime.output import note
from blockfs.runtime.units import parse_size
from syncer.cli.interpreter import look_rarely
from syncer.cli.registry.roots import Registry
from syncer.cli.ui.servers import Served, noted
from syncer.errors import UsageError
from syncer.server import process
from syncer.server.folder import ServerFolder
from syncer.server.http.tls import Certificates
from syncer.server.store.store import Store
from syncer.server.tokenfile import WatchedTokens
from syncer.server.tokens import make_token_file, read_tokens

FILE = click.Path(dir_okay=False)


@click.command("serve")
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--listen", default="127.0.0.1:8800", show_default=True, help="HOST:PORT; port 0: any free one.")
@click.option("--token-file", type=FILE, help="See `blocksync token`. Default: DIRECTORY/token, made.")
@click.option("--tls-cert", type=FILE, help="Serve HTTPS with this certificate: PEM, followed by those in between.")
@click.option("--tls-key", type=FILE, help="The certificate's key: PEM, without a password.")
@click.option("--block-size", help="For a new DIRECTORY: a power of two, 4KiB to 4MiB.  [default: 64KiB]")
@click.option("--json", "as_json", is_flag=True, help="Say that it is ready as a JSON line.")
@click.option("--verbose", is_flag=True, help="Log each request.")
def command(
    *,
    directory: str,
    listen: str,
    token_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    block_size: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Serve the object store in DIRECTORY over HTTP or HTTPS, until SIGTERM or Ctrl-C.

    DIRECTORY is made if it is missing; one with other files in it is refused. The token file is read again when it has
    changed (see `blocksync token`), and at SIGHUP with the certificate: a token that is gone counts no more.
    """
    look_rarely()
    logs.log_to(sys.stderr, level=logging.INFO if verbose else logging.WARNING)
    size_bytes = None if block_size is None else parse_size(block_size)
    process.parse_address(listen)  # what is wrong with the command line is told before a folder is made
    if token_file is not None:
        read_tokens(token_file)
    certificates = _certificates(tls_cert, tls_key)
    given = [path for path in (token_file, tls_cert, tls_key) if path is not None]
    with Store(ServerFolder.open(directory, block_size=size_bytes, given=given)) as store:
        if token_file is None:
            make_token_file(store.token_file)
        token_path = token_file or store.token_file
        _warn_of_readers(token_path, "holds tokens")
        if tls_key is not None:
            _warn_of_readers(tls_key, "is the key of the certificate")
        with process.bind(listen) as listener:
            address = process.url(listener, secure=certificates is not None)
            if certificates is None:
                _warn_of_plain(listener)
            manager = ServiceManager(os.environ.pop("NOTIFY_SOCKET", None))

            def ready() -> None:
                _ready(address, token_path, as_json=as_json)
                manager.ready(f"listening on {address}")

            served = Served(directory=os.path.abspath(directory), url=address, token_file=os.path.abspath(token_path))
            with noted(Registry(os.environ).servers, served):
                interrupted = process.serve(
                    store,
                    WatchedTokens(token_path),
                    listener,
                    ready,
                    lambda: manager.stopping("closing the store"),
                    certificates=certificates,
                    told=note,
                )
    return ExitCode.INTERRUPTED if interrupted else ExitCode.DONE


def _certificates(certificate: str | None, key: str | None) -> Certificates | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key go together: the certificate and its key")
    return Certificates(certificate, key)


def _warn_of_readers(path: str, what: str) -> None:
    """Say that others on this machine can read a secret."""
    if os.stat(path).st_mode & (stat.S_IROTH | stat.S_IWOTH):
        note(f"warning: {path} {what}, and every user of this machine can read it; chmod o= {path}")


def _warn_of_plain(listener: socket.socket) -> None:
    """Say that tokens and data go over the network as they are."""
    host = listener.getsockname()[0]
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        note(
            f"warning: listening on {host} without TLS: whoever is in between can read tokens and data; give "
            "--tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy that speaks HTTPS"
        )


def _ready(address: str, token_path: str, *, as_json: bool) -> None:
    """The lines that say so; whoever started us waits for `listening on`, which comes last."""
    if as_json:
        output.json_line("listening", {"url": address, "token_file": output.shown(os.fsencode(token_path))})
        return
    output.note(f"tokens: {token_path}")
    click.echo(f"listening on {address}")
