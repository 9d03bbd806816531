"""What a request asks for: names and bytes out of its query and its form."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import Request

from syncer.ui.security import Session, is_proof

_MOST_FIELDS: Final = 64


class NotFromPageError(Exception):
    """A form without the session's proof: somebody else made it, or the session is another one by now."""


def below(root: bytes, path: bytes) -> bytes | None:
    """The whole path of what is asked for below a root; None: it is no name, or leads out of the root."""
    path = path.lstrip(b"/")
    if not path or b"\0" in path or b".." in path.split(b"/"):
        return None
    return os.path.join(root, path)


class Fields:
    """Names and values. A value is bytes on the way to a file's name: it need not be UTF-8."""

    def __init__(self, raw: bytes) -> None:
        """Read them; of what is too much or malformed nothing is there."""
        try:
            text = raw.decode("ascii")
            pairs = parse_qsl(
                text, keep_blank_values=True, errors="surrogateescape", max_num_fields=_MOST_FIELDS, separator="&"
            )
        except ValueError:
            pairs = []
        self._values = dict(pairs)

    def raw(self, name: str) -> bytes:
        """A value; empty: it is not there."""
        return os.fsencode(self._values.get(name, ""))

    def unquoted(self, name: str) -> bytes:
        """A value that is percent-encoded once more; empty: it is not there."""
        return unquote_to_bytes(self.raw(name))

    def text(self, name: str) -> str:
        """A value that is a text of ours."""
        return self._values.get(name, "")

    def number(self, name: str, default: int) -> int:
        """A value that is a count."""
        value = self._values.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else default


def query(request: Request) -> Fields:
    """What stands behind the question mark."""
    return Fields(request.scope["query_string"])


async def form(request: Request) -> Fields:
    """What was sent.

    Raises:
        NotFromPageError: Without the session's proof.
    """
    fields = Fields(await request.body())
    session: Session = request.scope["session"]
    if not is_proof(session, fields.text("proof")):
        raise NotFromPageError
    return fields
