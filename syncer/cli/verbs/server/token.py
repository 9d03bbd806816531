"""`blocksync token`: who may talk to a server, also while it runs."""

from __future__ import annotations

import os
import time
from typing import Final

import click

from blockfs.cli.groups import Verbs
from blockfs.runtime.output import JsonValue, json_line, note
from blockfs.runtime.units import counted, format_size, parse_duration
from syncer.cli.output import columns
from syncer.errors import NotFoundError, UsageError
from syncer.server.tokenfile import TokenFile
from syncer.server.tokens import DEFAULT_ACCOUNT, Token, check_account, new_secret, parse_quota, time_text

PLACE: Final = click.Path()


@click.group("token", cls=Verbs)
def command() -> None:
    """Say who may talk to a server: make tokens, list them, take them back.

    A server that runs knows within some seconds. A token that is gone or has ended counts no more, and its connections
    end.
    """


@command.command("new")
@click.argument("directory", type=PLACE)
@click.argument("account", default=DEFAULT_ACCOUNT)
@click.option("--expires", metavar="TIME", help="It ends after so long: 30d, 12h.  [default: it has no end]")
@click.option("--quota", metavar="SIZE", help="What the account may store: 100GiB. For the first token of an account.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def new_command(*, directory: str, account: str, expires: str | None, quota: str | None, as_json: bool) -> None:
    """Make a token for ACCOUNT (default: default), and print the line for a client's token file.

    With `/metrics` for ACCOUNT it opens the server's figures, and nothing else.

    DIRECTORY is a server's, or a token file itself.
    """
    check_account(account, "ACCOUNT")
    token = Token(
        secret=new_secret(),
        account=account,
        quota_bytes=0 if quota is None else parse_quota(quota, "--quota"),
        until_s=None if expires is None else float(int(time.time() + _span(expires))),
    )
    file = _file(directory)
    file.add(token)
    if as_json:
        json_line("token", {**_fields(token), "token": token.secret})
        return
    note(f"token {token.ident} for the account {account}{_end(token)}, in {file.path}")
    click.echo(f"{token.secret} {account}")


@command.command("list")
@click.argument("directory", type=PLACE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per token.")
def list_command(*, directory: str, as_json: bool) -> None:
    """List tokens by their ID; none is shown itself.

    DIRECTORY is a server's, or a token file itself.
    """
    file = _file(directory)
    tokens = file.tokens()
    if as_json:
        for token in tokens:
            json_line("token", _fields(token))
        return
    rows = [
        (token.ident, token.account, format_size(token.quota_bytes) if token.quota_bytes else "-", _state(token))
        for token in tokens
    ]
    columns.show(f"{file.path}: {counted(len(tokens), 'token', 'tokens')}", ("ID", "account", ">quota", "ends"), rows)


@command.command("revoke")
@click.argument("directory", type=PLACE)
@click.argument("ident", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def revoke_command(*, directory: str, ident: str, as_json: bool) -> None:
    """Take a token back: it counts no more, and its connections end.

    ID is what `token list` shows, or its beginning. DIRECTORY is a server's, or a token file itself.
    """
    gone = _file(directory).remove(ident)
    if as_json:
        json_line("revoked", _fields(gone))
    else:
        note(f"revoked {gone.ident}, a token of the account {gone.account}")


def _file(directory: str) -> TokenFile:
    """The token file that is meant."""
    path = os.path.join(directory, "token") if os.path.isdir(directory) else directory
    if not os.path.exists(path):
        raise NotFoundError(f"{path} does not exist: give the folder that `blocksync serve` has, or a token file")
    return TokenFile(path)


def _span(text: str) -> float:
    seconds = parse_duration(text)
    if not 0 < seconds <= 100 * 366 * 86400:
        raise UsageError(f"--expires {text}: expected more than nothing, and at most a hundred years")
    return seconds


def _fields(token: Token) -> dict[str, JsonValue]:
    return {
        "id": token.ident,
        "account": token.account,
        "quota": token.quota_bytes or None,
        "expires": None if token.until_s is None else time_text(token.until_s),
        "expired": not token.counts(time.time()),
    }


def _end(token: Token) -> str:
    return "" if token.until_s is None else f", until {time_text(token.until_s)}"


def _state(token: Token) -> str:
    if token.until_s is None:
        return "-"
    return time_text(token.until_s) + ("" if token.counts(time.time()) else ", ended")
