"""What carries frames. By itself, because settings name it, and reading settings must not load a cipher (20 ms)."""

from __future__ import annotations

from enum import StrEnum


class Carrier(StrEnum):
    """One of three, the best first."""

    ETHERNET = "ethernet"
    UDP6 = "udp6"
    UDP4 = "udp4"
