"""What a peak took is given back to the system, and a small growth is left alone."""

from __future__ import annotations

import subprocess
import sys

_GROW = """
import gc
from blockfs.runtime.memory import give_back, resident_bytes

def rings(count):
    for _ in range(count):
        ring = [bytearray(1000)]
        ring.append(ring)

gc.disable()
before = resident_bytes()
rings(COUNT)
grown = resident_bytes()
told = give_back(before)
print(before, grown, told, resident_bytes())
"""


def _figures(count: int) -> list[int]:
    program = _GROW.replace("COUNT", str(count))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return [int(each) for each in done.stdout.split()]


def test_what_a_peak_took_goes_back_to_the_system() -> None:
    before, grown, told, after = _figures(80_000)
    assert grown - before > 64 << 20
    assert after - before < 8 << 20
    assert abs(told - after) < 1 << 20


def test_a_small_growth_is_left_alone_and_the_next_look_compares_with_the_same() -> None:
    before, grown, told, after = _figures(8_000)
    assert 4 << 20 < grown - before < 32 << 20
    assert after >= grown
    assert told == before
