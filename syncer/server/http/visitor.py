"""Who sends a request: tokens are looked up here, and the connection that shows one is known from then on."""

from __future__ import annotations

import time

from starlette.types import Scope

from syncer.server.budget import RETRY_AFTER_S, Purse
from syncer.server.errors import TooMany
from syncer.server.http.bounded_protocol import RECEPTION_OF, Reception, guest_of
from syncer.server.tokens import METRICS, Tokens


class Visitor:
    """The sender of one request.

    Attributes:
        address: Where from, as the log tells it: behind a proxy on this machine, what that says.
        shown: A token came with the request, known or not.
        purse: What the request has of its account's memory.
    """

    def __init__(self, tokens: Tokens, scope: Scope) -> None:
        self._tokens = tokens
        self._guest = guest_of(scope)
        self._reception: Reception | None = scope.get("state", {}).get(RECEPTION_OF)
        client = scope.get("client")
        self.address: str = client[0] if client else ""
        self.shown = False
        self.purse: Purse | None = None

    def account(self, token: bytes) -> str | None:
        """Whose token this is; None for nobody's.

        Raises:
            TooMany: The account has too many connections.
        """
        self.shown = True
        account = self._tokens.account(token)
        if account is None or self._guest is None or self._reception is None:
            return account
        if not self._reception.guests.show(self._guest, account, token):
            most = self._reception.guests.bounds.of_account
            text = f"This account has {most} connections; close some of them"
            raise TooMany(text, {"Retry-After": str(RETRY_AFTER_S), "Connection": "close"})
        return account

    def opens_metrics(self, token: bytes) -> bool:
        """Whether this token is for the page of figures; its connection is no stranger's then."""
        self.shown = True
        if not self._tokens.opens_metrics(token):
            return False
        if self._guest is not None and self._reception is not None:
            self._reception.guests.show(self._guest, METRICS, token)
        return True

    def connections(self) -> tuple[int, int]:
        """Connections that have shown a token, and those that have not; this one is among them."""
        return (0, 0) if self._reception is None else self._reception.guests.counts()

    def close(self) -> None:
        """The reply is sent."""
        if self.purse is not None:
            self.purse.close()

    def warn(self, event: str, **fields: object) -> None:
        """Log something that anybody can cause."""
        if self._reception is not None:
            self._reception.journal.warn(event, self.address, time.monotonic(), **fields)
