"""What `make demo` shows of two machines on one network, on a small image."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from scripts import neighbours

MIB = 1 << 20
SIZE = 16 * MIB
BLOCKS = SIZE // (64 << 10)
SLOW_MBIT_S = 4.0
"""Of the server's cable: a neighbour is faster, also where the machine has other things to do for seconds."""


def children() -> set[str]:
    """Processes that this one has started."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def namespaces() -> set[int]:
    """Networks in which any process is that this one has started, by inode."""
    return {Path(f"/proc/{child}/ns/net").stat().st_ino for child in children()}


def test_a_neighbour_gives_nearly_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "SERVER_MBIT_S", SLOW_MBIT_S)
    image = tmp_path / "golden.img"
    image.write_bytes(os.urandom(SIZE))
    said: list[str] = []
    before = namespaces()
    neighbours.show(tmp_path / "lan", image, said.append)
    assert namespaces() <= before | {Path("/proc/self/ns/net").stat().st_ino}
    (text,) = said
    assert len(text.splitlines()) == 2
    told = re.search(r"golden\.img came as (\d+) blocks from the neighbour and (\d+) from the server", text)
    assert told is not None, text
    near, far = map(int, told.groups())
    assert near + far == BLOCKS
    assert far <= BLOCKS // neighbours.MOST_SHARE


def test_where_no_namespace_can_be_made_one_line_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "why_not", lambda: "this process has not CAP_NET_ADMIN")
    said: list[str] = []
    neighbours.show(tmp_path / "lan", tmp_path / "none", said.append)
    assert said == ["two machines on one network are not shown: this process has not CAP_NET_ADMIN"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_demo_that_fails_leaves_no_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """A namespace lives as long as the process that holds it."""
    before, within = children(), set[str]()

    def fail(_: object) -> None:
        within.update(children())
        raise error

    monkeypatch.setattr(neighbours, "Site", fail)
    with pytest.raises(error):
        neighbours.show(tmp_path / "lan", tmp_path / "none", print)
    assert len(within - before) == 4
    assert children() <= before
