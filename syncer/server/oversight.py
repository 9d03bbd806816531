"""What a server tells those who look after it: `GET /healthz`, which everybody may ask, and `GET /metrics`.

`/healthz` says one word. `/metrics` is for who shows a token that is for that page, and for it only
(`tokens.METRICS`): its sums are over all accounts, and no account may see what the others have.

Both are answered whoever asks how often: what they take is made at most once in a while (`Kept`), and shared by all who
ask meanwhile. A request that carries X-Auth-Token does not come here: there may be an account that is called so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from syncer.server.calls.call import TEXT, reply
from syncer.server.errors import NotAllowed, Unauthorized
from syncer.server.http.kept import TEXT_FORMAT, Kept, bearer
from syncer.server.http.visitor import Visitor
from syncer.server.store.store import Store

HEALTH_PATH: Final = b"/healthz"
METRICS_PATH: Final = b"/metrics"
PATHS: Final = frozenset({HEALTH_PATH, METRICS_PATH})

HEALTH_S: Final = 1.0
FIGURES_S: Final = 15.0  # Prometheus asks every 15 s to a minute
_METHODS: Final = frozenset({"HEAD", "GET", "PUT", "POST", "DELETE", "COPY", "MOVE"})
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="metrics"'}


class Requests:
    """What was answered since the start. For one thread: the loop's.

    Attributes:
        counts: By method and status.
        seconds: By method, from the head of a request to that of its reply.
    """

    def __init__(self) -> None:
        self.counts: Final[Counter[tuple[str, int]]] = Counter()
        self.seconds: Final[dict[str, float]] = {}

    def note(self, method: str, status: int, seconds: float) -> None:
        """Count one more. A client can make up any number of methods: they are one."""
        name = method if method in _METHODS else "other"
        self.counts[name, status] += 1
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


class Oversight:
    """Answers both.

    Attributes:
        requests: What was answered; the application counts.
    """

    def __init__(self, store: Store) -> None:
        """Of a store."""
        self.requests: Final = Requests()
        self._health = Kept(store.probe, HEALTH_S)
        self._figures = Kept(store.figures, FIGURES_S)

    async def answer(
        self, path: bytes, method: str, fields: Mapping[str, str], visitor: Visitor, tokens: int
    ) -> Response:
        """Answer a request without X-Auth-Token.

        Args:
            path: One of `PATHS`.
            method: HTTP's.
            fields: Of its head, by names in lower case.
            visitor: Who asks.
            tokens: How many count now.

        Raises:
            NotAllowed: Not GET or HEAD.
            Unauthorized: It may not see the figures.
        """
        if method not in {"GET", "HEAD"}:
            raise NotAllowed("This page is read, nothing else", {"Allow": "GET, HEAD"})
        if path == HEALTH_PATH:
            is_well = await self._health.get() is not None
            return reply(200 if is_well else 503, b"ok\n" if is_well else b"failing\n", content_type=TEXT)
        token = bearer(fields.get("authorization", ""))
        if token is None or not visitor.opens_metrics(token.encode("latin-1", "replace")):
            text = "The figures need `Authorization: Bearer TOKEN`; `blocksync token new DIR /metrics` makes one"
            raise Unauthorized(text, _CHALLENGE)
        from syncer.server.metrics import exposition  # noqa: PLC0415 - its library, for who is asked for figures

        figures = await self._figures.get()
        text = exposition(figures, self.requests.counts, self.requests.seconds, visitor.connections(), tokens)
        return reply(200, text.encode(), content_type=TEXT_FORMAT)
