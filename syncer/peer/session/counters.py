"""What a session counts. The shell makes metrics of it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import FrameType

LATENCY_S: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Upper ends of the histogram's classes; one more is for what is slower."""


class Counters:
    """Numbers since the session began. They only grow.

    Attributes:
        frames_in: Valid frames, by type.
        frames_out: Frames given to the shell, by type: one that goes by two links counts twice.
        drops: Frames not taken, by reason.
        tokens_asked: Ids in our questions.
        tokens_answered: Ids that peers said they have, of those still wanted.
        questions: How many we asked.
        broadcasts_held: Frames that a link did not carry, or not yet, because its budget was used up.
        latency: Answers by the time since the question, in the classes of `LATENCY_S`.
        latency_s: Sum of these times in seconds.
    """

    def __init__(self) -> None:
        """All zero."""
        self.frames_in: Counter[FrameType] = Counter()
        self.frames_out: Counter[FrameType] = Counter()
        self.drops: Counter[Drop] = Counter()
        self.tokens_asked = 0
        self.tokens_answered = 0
        self.questions = 0
        self.broadcasts_held = 0
        self.latency = [0] * (len(LATENCY_S) + 1)
        self.latency_s = 0.0

    def took(self, seconds: float) -> None:
        """An answer came so long after its question."""
        self.latency[sum(seconds > end for end in LATENCY_S)] += 1
        self.latency_s += seconds
