"""The index from which others are answered: how long it takes to make, and how much of the disk."""

from __future__ import annotations

from benchmarks import bench_share_index
from benchmarks.lan.sizes import Sizes
from benchmarks.rows import Row


def run(sizes: Sizes) -> list[Row]:
    """Of blocks in 10,000 files."""
    made, *_ = bench_share_index.measure("10,000 files", 10_000, sizes.index_blocks, sizes.repetitions)
    about = f"index of {sizes.index_blocks:,} blocks in 10,000 files"
    return [
        Row(part="index", work=f"{about}: made in", unit="s", values=made.values),
        Row(part="index", work=f"{about}: size", unit="MB", values=[made.notes["bytes"] / 1e6]),
    ]
