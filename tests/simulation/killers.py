"""Seeds that have killed the mutants which take longest: where the everyday run begins to look.

From the lines that `python -m tests.simulation mutants 0 1` prints at full effort. A seed that kills no more, because
what seeds mean has changed, costs no more than itself.
"""

from __future__ import annotations

from typing import Final

KILLERS: Final = {
    "unknown-is-absent": 13244,
    "one-node-twice": 688,
    "no-cycle-check": 10772,
    "cycles-keep-the-local-places": 12080,
    "trash-from-the-top": 1296,
    "no-marker-is-made": 744,
    "moved-directories-come-back-empty": 2780,
    "what-holds-others-is-deleted": 11649,
    "folded-names-are-two": 339,
    "a-local-twin-takes-a-folded-name": 26724,
    "attributes-are-merged-as-one": 1988,
    "too-large-is-removed": 17780,
    "no-opinion-is-an-empty-set": 20423,
    "attributes-count-as-agreed": 1606,
    "a-row-before-attributes-are-set": 3428,
    "of-two-that-become-one-the-attributes-of-one-count": 13271,
    "rows-before-names-are-durable": 629,
    "updates-do-not-wait-for-copies": 221,
    "moves-are-no-barriers": 26,
    "directories-go-first": 160,
    "evidence-is-taken-anew-on-the-server": 384,
    "moved-along-is-not-booked": 110,
    "unknown-deleted-names-are-ignored": 37061,
    "what-is-gone-in-a-part-takes-nothing-along": 45,
    "what-leaves-a-moved-directory-moves-as-a-whole": 101551,
    "rows-lose-the-directory-above": 6764,
}
