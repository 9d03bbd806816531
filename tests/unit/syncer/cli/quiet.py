"""Figures of an exchange with peers in which nothing has happened."""

from __future__ import annotations

from typing import Final

from syncer.peer.exchange.figures import Figures

QUIET: Final = Figures(
    port=17511, links=("lan0",), peers=(), bans=(), frames_in={}, frames_out={}, drops={}, tokens_asked=0,
    tokens_answered=0, latency=(), latency_ends_s=(), latency_s=0.0, blocks_from_peers=0, bytes_from_peers=0,
    wasted_bytes=0, blocks_to_peers=0, bytes_to_peers=0, busy=0, stalls=0, lacked=0, broadcasts_held=0,
)  # fmt: skip
