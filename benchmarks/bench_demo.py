"""The figures of the README: what `make demo` measures on its images, and the table of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness import RESULTS, machine
from benchmarks.rows import put_into_page
from scripts import demo

COMMAND: Final = "python -m benchmarks demo"
README: Final = Path(__file__).parent.parent / "README.md"
SAVED: Final = RESULTS / "demo.jsonl"


def main(_arguments: Sequence[str]) -> None:
    """Run the demo, save what it measured, put the table in its place."""
    measured: dict[str, float] = {}
    if demo.main(measured):
        sys.exit("the demo did not show what it promises")
    if "near_blocks" not in measured:
        sys.exit("it must be run where two machines on one network can be shown, too")
    lines = [machine(), {"type": "result", "version": 1, "measured": measured}]
    SAVED.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    put_into_page(README, COMMAND, table(saved()))


def saved() -> dict[str, float]:
    """What was measured when it was run last."""
    found: dict[str, float] = json.loads(SAVED.read_text().splitlines()[1])["measured"]
    return found


def table(measured: Mapping[str, float]) -> str:
    """The README's table: bytes, blocks and times of one run."""
    count = {key: f"{value:,.0f}" for key, value in measured.items()}
    mib = {key: f"{value / (1 << 20):,.0f} MiB" for key, value in measured.items()}
    page = f"blocks up {count['page_blocks_sent']}, down {count['page_blocks_received']}"
    rows = (
        ("what", "cost"),
        ("---", "---"),
        (f"{count['images']} related images of 512 MiB on a volume, copied, cloned and edited", mib["stored_bytes"]),
        (
            "all of them to the server",
            f"{count['push_blocks_sent']} blocks ({mib['push_bytes_sent']}), {measured['push_seconds']:.2f} s",
        ),
        (
            "one changed page of 4 KiB",
            f"{page}; {count['page_bytes_read_local']} bytes read, {measured['page_seconds']:.2f} s",
        ),
        ("a rename and a clone", f"{count['move_blocks']} blocks"),
        (
            "an image of 512 MiB on a machine whose neighbour has it",
            f"{count['near_blocks_of_server']} of {count['near_blocks']} blocks from the server",
        ),
    )
    return "".join(f"| {what} | {cost} |\n" for what, cost in rows)
