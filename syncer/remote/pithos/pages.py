"""The pages of one listing, taken one after the other: all of them, or what differs from a base."""

from __future__ import annotations

from syncer.core.partial.listing_diff import ListingDiff
from syncer.remote.container.info import RowStats, sort_out
from syncer.remote.container.replies import Judge
from syncer.remote.http.transport import Reply


class Pages:
    """What was listed so far.

    Attributes:
        found: The rows, or those of them that are not known.
        diff: From what is known; None: nothing is known.
        last: The last name, where the next page begins.
        count: Pages with rows.
        rows: Rows on all of them.
    """

    def __init__(self, diff: ListingDiff | None = None) -> None:
        self.found = RowStats(objects=[], refused=[], hidden=[])
        self.diff = diff
        self.last = ""
        self.count = 0
        self.rows = 0
        self._names: set[str] = set()

    def take(self, judge: Judge, reply: Reply) -> int:
        """Read one page; returns how many rows it has.

        Raises:
            BadReplyError: An object is listed twice: also what a server does that ignores the marker.
        """
        rows = judge.rows(reply)
        if not rows:
            return 0
        page = sort_out(rows)
        # A difference is there to keep little: then the first name of each page has to do, which tells a marker that is
        # ignored. An object that moved from one page to another has changed the container, and the listing starts anew.
        names = {row.name for row in rows}
        fresh = names if self.diff is None else {rows[0].name}
        if len(names) != len(rows) or not fresh.isdisjoint(self._names):
            judge.bad(f"{judge.container} lists an object twice")
        self._names |= fresh
        self.found.objects.extend(page.objects if self.diff is None else self.diff.differing(page.objects))
        self.found.refused.extend(page.refused)
        self.found.hidden.extend(page.hidden)
        self.last = rows[-1].name
        self.count += 1
        self.rows += len(rows)
        return len(rows)
