"""stats --map: what each block of a file is, and which files share; on native mounts, too."""

from __future__ import annotations

import json
import os
import random
import re

import pytest

from tests.conftest import Mounted


def test_a_map_tells_of_each_block_what_it_is(mounted: Mounted) -> None:
    noise = random.Random(1)
    block = [noise.randbytes(1 << 16) for _ in range(6)]
    disk = b"".join([*block[:4], bytes(1 << 16), block[4], b"tail"])
    (mounted.path / "disk").write_bytes(disk)
    (mounted.path / "other").write_bytes(b"".join([block[1], block[2], block[5]]))
    (mounted.path / "folder").mkdir()
    (mounted.path / "folder/caf\xe9").write_bytes(block[3])
    mounted.run("flush", mounted.path)
    mounted.run("snapshot", "create", mounted.path, "kept")
    found = json.loads(mounted.run("stats", mounted.path / "disk", "--map", "--json").stdout)
    assert (found["type"], found["blocks"], found["is_whole"], found["is_behind"]) == ("map", 7, True, False)
    other = [each["path"] for each in found["others"]].index("other")
    cells = [[0, 0, 1, 0, -1], *[[0, 0, 0, 1, other]] * 2, [0, 0, 0, 1, 1 - other], [1, 0, 0, 0, -1]]
    assert found["cells"] == [*cells, *[[0, 0, 1, 0, -1]] * 2]
    assert {each["path"]: each["blocks"] for each in found["others"]} == {"other": 2, "folder/caf\xe9": 1}
    told = json.loads(mounted.run("stats", mounted.path, "--map", "--json").stdout)
    assert {each["path"]: each["shared"] for each in told["sharers"]} == {"disk": 3, "other": 2, "folder/caf\xe9": 1}
    counted = json.loads(mounted.run("stats", mounted.path, "--json").stdout)
    for key in ("files", "logical_bytes", "unique_bytes", "staged_bytes"):
        assert told[key] == counted[key]
    assert told["filled_bytes"] / told["unique_bytes"] == pytest.approx(counted["dedup_ratio"])
    picture = mounted.run("stats", mounted.path / "disk", "--map").stdout
    assert re.search(r"^#aab\.##$", picture, re.MULTILINE) or re.search(r"^#bba\.##$", picture, re.MULTILINE)
    assert "disk " in mounted.run("stats", mounted.path / "folder", "--map").stdout
    old = json.loads(mounted.run("stats", mounted.path / ".snapshots/kept/other", "--map", "--json").stdout)
    assert sum(cell[3] for cell in old["cells"]) == 3  # with the live file that it is a copy of
    mounted.run("stats", mounted.path / "none", "--map", expect=10)
    mounted.run("stats", mounted.path, "--map", "--metrics", expect=2)


def test_a_map_shows_which_blocks_are_staged_or_written_by_the_kernel(mounted: Mounted) -> None:
    """Of a file that was sealed and is written to since, those only: also where the kernel writes itself."""

    def cells() -> list[list[int]]:
        found = json.loads(mounted.run("stats", mounted.path / "disk", "--map", "--json").stdout)
        assert not found["is_behind"]
        return list(found["cells"])

    data = random.Random(2).randbytes(6 << 16)
    hole, staged, own = [1, 0, 0, 0, -1], [0, 1, 0, 0, -1], [0, 0, 1, 0, -1]
    with (mounted.path / "disk").open("wb") as file:
        file.write(bytes(3 << 16) + b"x")
        os.fsync(file.fileno())
        assert staged in cells()
        file.seek(0)
        file.write(data)
        mounted.run("flush", mounted.path)
        assert cells() == [own] * 6
        for at in (1, 4):
            os.pwrite(file.fileno(), b"new", (at << 16) + 5000)
        os.fsync(file.fileno())
        assert cells() == [own, staged, own, own, staged, own]
        os.pwrite(file.fileno(), b"not synced", 5 << 16)
        assert cells()[5] in (own, staged)  # the kernel has it yet, or has given it to us
    mounted.run("flush", mounted.path)
    assert cells() == [own] * 6
    (mounted.path / "disk").write_bytes(bytes(3 << 16) + b"x")
    mounted.run("flush", mounted.path)
    assert cells() == [hole] * 3 + [own]
