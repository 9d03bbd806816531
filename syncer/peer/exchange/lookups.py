"""Questions of others that are looked up in the indexes of shares: at once where that reads no disk, else in a thread.

What comes while a thread looks is looked up together with its like: a thread is as dear as 1,000 ids.

Source: docs/design/peer-exchange.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from syncer.peer.exchange.limits import Uploads
from syncer.peer.session.actions import LookUp

QUESTIONS: Final = 64  # are looked up at once: 10,000 ids, 10 ms
Held = Callable[[Sequence[bytes]], Sequence[bool]]
"""Tells of tokens whether their blocks may be had. Blocking."""


class LookUps:
    """The questions that are being looked up."""

    def __init__(
        self,
        held: Callable[[str], Held],
        looked_up: Callable[[LookUp, list[bool]], None],
        spawn: Callable[..., bool],
    ) -> None:
        """None are.

        Args:
            held: What tells of a share's blocks now.
            looked_up: Told what became of each question; owed for all of them.
            spawn: Starts a task, and tells whether it did.
        """
        self._held = held
        self._looked_up = looked_up
        self._spawn = spawn
        self._waiting: dict[str, list[LookUp]] = {}  # of shares of which something is just looked up

    def take(self, question: LookUp, uploads: Uploads) -> None:
        """Look a question up now, or soon.

        Args:
            question: What.
            uploads: Has the threads, and knows whether indexes are in memory.
        """
        if question.share in self._waiting:
            self._waiting[question.share].append(question)
        elif uploads.is_warm():
            self._look_here(question, uploads)
        elif self._spawn(self._look, question.share, uploads):
            self._waiting[question.share] = [question]

    def _look_here(self, question: LookUp, uploads: Uploads) -> None:
        held: Sequence[bool] = [False] * len(question.tokens)
        try:
            held = uploads.look_up_here(self._held(question.share), question.tokens)
        finally:  # whatever became of it, its place among those in work is free again
            self._tell([question], held)

    async def _look(self, share: str, uploads: Uploads) -> None:
        waiting, owed = self._waiting[share], list[LookUp]()
        try:
            while waiting:
                owed = waiting[:QUESTIONS]
                del waiting[:QUESTIONS]
                tokens = [token for each in owed for token in each.tokens]
                self._tell(owed, await uploads.look_up(self._held(share), tokens))
                owed = []
        finally:
            del self._waiting[share]
            # Whatever became of the look-up: their places among those in work are free again.
            owed += waiting
            self._tell(owed, [False] * sum(len(each.tokens) for each in owed))

    def _tell(self, questions: Sequence[LookUp], held: Sequence[bool]) -> None:
        answers = iter(held)
        for each in questions:
            self._looked_up(each, list(islice(answers, len(each.tokens))))
