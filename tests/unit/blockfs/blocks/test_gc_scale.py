"""What a collection of a large index needs."""

from __future__ import annotations

from blockfs.blocks.maintenance.gc import Marks
from tests import effort
from tests.soak import gc_scale


def test_a_collection_needs_little_more_memory_than_its_marks() -> None:
    """8 bytes per block at most, and what the process takes anyway: nothing else grows with the index."""
    figures = gc_scale.measure(effort.count("large collections"))
    assert figures.rows // 2 * 0.95 <= figures.removed <= figures.rows // 2
    assert figures.anon_bytes <= 64 << 20


def test_the_marks_of_a_tebibyte_fit() -> None:
    assert len(Marks(gc_scale.ROWS, 0)._bits) == 128 << 20
    assert len(Marks(gc_scale.ROWS * 2 - 1, 0)._bits) == 128 << 20
