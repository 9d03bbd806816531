"""The one knob: how much of each ring, suite and harness a run does. `EFFORT=full` in the environment turns it.

Whatever is counted (seeds, examples, kills, seconds) has a row here with three counts, and asks for its count by name:

    everyday   `make test`: each at least once, within minutes;
    full       `make test EFFORT=full`, what CI runs: 40 minutes; twice that on a slow machine;
    soak       `make soak`: hours.

docs/dev/testing.md shows the table; `python -m tests.effort` writes it anew, and a test compares.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

VARIABLE: Final = "EFFORT"
SCALE: Final = "EFFORT_SCALE"
PAGE: Final = Path(__file__).parents[1] / "docs/dev/testing.md"
_ABOVE, _BELOW = "<!-- from tests/effort.py -->\n", "<!-- to here -->\n"


class Effort(StrEnum):
    """How thorough a run is."""

    EVERYDAY = "everyday"
    FULL = "full"
    SOAK = "soak"


class Counts(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        what: What is counted.
        everyday: For `make test`.
        full: For `make test EFFORT=full`.
        soak: For `make soak`, in all.
        test: Who runs the first two, below tests/.
        part: Which part of `make soak` runs the third: tests/soak/NAME.py. `suites` runs the test itself.
    """

    what: str
    everyday: int
    full: int
    soak: int
    test: str
    part: str = "suites"

    def of(self, effort: Effort) -> int:
        """The count of one effort."""
        return {Effort.EVERYDAY: self.everyday, Effort.FULL: self.full, Effort.SOAK: self.soak}[effort]


_R: Final = "unit/syncer/remote/repository"

KNOB: Final = {
    # --- rings: docs/design/planner.md, section 6
    "ring R0": Counts("seeds", 8000, 300_000, 2_000_000, "simulation/test_planner.py", "planner"),
    "ring R0, fast paths": Counts("seeds", 500, 2000, 20_000, "simulation/test_planner.py"),
    "ring R1": Counts("examples", 500, 6000, 100_000, "simulation/test_hypothesis.py"),
    "ring R2, one device": Counts("seeds", 250, 2500, 20_000, "simulation/test_alone.py"),
    "ring R2": Counts("seeds", 400, 4000, 60_000, "simulation/test_engine.py", "planner"),
    "ring R2, own writes": Counts("seeds", 60, 400, 4000, "unit/syncer/engine/test_echoes.py"),
    "ring R3": Counts("histories per kind of root", 3, 26, 150, "integration/test_scenarios.py"),
    "ring R3 on repositories": Counts(
        "histories per kind of root and store", 1, 8, 60, "integration/test_scenarios.py"
    ),
    "four devices": Counts("histories", 40, 300, 20_000, "simulation/test_crowd.py", "planner"),
    "ring R1 on a repository": Counts("examples", 10, 100, 5000, "simulation/test_repository.py"),
    "ring R2 on a repository": Counts("seeds", 60, 250, 30_000, "simulation/test_repository.py", "planner"),
    "four devices of a repository": Counts("histories", 10, 100, 5000, "simulation/test_repository.py", "planner"),
    "peer scenarios": Counts("seeds", 50, 5000, 100_000, "simulation/test_peers.py"),
    "planner mutants, R0": Counts("seeds each, at most", 48_000, 48_000, 48_000, "simulation/test_mutants.py"),
    "planner mutants, R2": Counts("seeds each, at most", 4000, 4000, 4000, "simulation/test_mutants.py"),
    "parts of a tree": Counts("seeds", 2000, 4000, 10_000, "unit/syncer/core/test_affected.py"),
    "parts of a volume": Counts("seeds", 600, 3000, 10_000, "unit/syncer/local/test_volume_part.py"),
    # --- harnesses: kills, power cuts, devices, races, damage
    "six devices": Counts("seconds of trouble", 8, 60, 600, "devices/test_six.py", "devices"),
    "six devices of a repository": Counts("seconds of trouble", 5, 60, 600, "devices/test_six.py", "devices"),
    "kills of a mount": Counts("kills", 4, 16, 1000, "crash/test_kills.py", "kills"),
    "repository kills": Counts("kills of each verb", 2, 20, 300, "crash/test_repository_kills.py", "repository_kills"),
    "upkeep kills": Counts("kills of each verb", 1, 1, 100, "crash/test_upkeep_kills.py"),
    "power cuts": Counts("cuts of a recording", 3, 8, 75, "power/test_power_cut.py", "power"),
    "power cuts, mounted": Counts("cuts of a recording", 1, 1, 5, "power/test_power_cut.py", "power"),
    "deaths of a block store": Counts("percent of its steps", 12, 100, 100, "unit/blockfs/blocks/test_crashes.py"),
    "deaths of a hot file": Counts("percent of its steps", 10, 50, 100, "unit/blockfs/engine/hot/test_hot_crashes.py"),
    "pages sealed while they are written": Counts(
        "pages per filesystem", 5000, 40_000, 1_000_000, "unit/blockfs/engine/hot/test_seal_loop.py"
    ),
    "changes by name": Counts("seeds", 20, 60, 1000, "unit/syncer/engine/test_named.py"),
    "deaths of a repair": Counts("percent of its calls", 25, 100, 100, "unit/blockfs/service/test_repair_kills.py"),
    "deaths of a cycle": Counts("percent of its steps", 10, 50, 100, "unit/syncer/engine"),
    "host faults": Counts("calls that fail", 12, 24, 2000, "unit/blockfs/engine/test_host_faults.py", "faults"),
    "hostile writers": Counts("displacements", 200, 1000, 50_000, "race/test_hostile_writers.py", "hostile"),
    "hostile writers, mounted": Counts("displacements", 60, 300, 50_000, "race/test_hostile_writers.py", "hostile"),
    "databases": Counts("kills", 1, 2, 40, "real/test_databases.py", "databases"),
    "guest": Counts("hard ends per way to open a disk", 2, 2, 8, "real/test_guest.py", "guest"),
    "filesystems that fold": Counts("cases", 1, 1, 7, "real/test_folding.py"),
    "damaged volumes": Counts("volumes", 2, 2, 150, "system/test_damaged_bytes.py", "repair"),
    "calls beside ext4": Counts("sequences", 2, 4, 150, "system/test_posix_machine.py", "posix"),
    "exerciser": Counts("operations", 500, 1000, 1_200_000, "system/test_posix_machine.py", "fsx"),
    "large collections": Counts("rows", 1 << 17, 1 << 18, 1 << 24, "unit/blockfs/blocks/test_gc_scale.py", "gc_scale"),
    # --- models and properties, driven by Hypothesis
    "properties": Counts("examples", 30, 100, 500, "unit"),
    "block directory": Counts("sequences", 12, 60, 1000, "unit/blockfs/blocks/test_directory_model.py"),
    "tree": Counts("sequences", 15, 60, 1000, "unit/blockfs/tree/test_tree_machine.py"),
    "tree roots": Counts("examples", 20, 60, 1000, "unit/blockfs/tree/test_tree_merkle.py"),
    "damaged trees": Counts("examples", 10, 30, 3000, "unit/blockfs/tree/test_tree_repair.py", "repair"),
    "namespace": Counts("sequences", 15, 80, 1000, "unit/blockfs/engine/test_namespace_machine.py"),
    "files": Counts("sequences", 20, 100, 1000, "unit/blockfs/engine/test_files_machine.py"),
    "owners of one file": Counts("lives of a volume", 4, 30, 2000, "unit/blockfs/engine/test_owners.py"),
    "snapshots": Counts("sequences", 6, 25, 800, "unit/blockfs/engine/test_snapshots_machine.py", "snapshots"),
    "server's store": Counts("sequences", 25, 150, 1000, "unit/syncer/server/test_store_machine.py"),
    "server's listings": Counts("examples", 60, 300, 3000, "unit/syncer/server/test_listings.py"),
    "server's batches": Counts("examples", 20, 100, 1000, "unit/syncer/server/test_bulk.py"),
    "server's moves of trees": Counts("examples", 15, 60, 1000, "unit/syncer/server/test_subtree_move.py"),
    "server's transactions": Counts("examples", 15, 60, 1000, "unit/syncer/server/test_catalogue.py"),
    "server's changes": Counts("examples", 15, 60, 1000, "unit/syncer/server/test_change_feed.py"),
    "server's edits": Counts("examples", 15, 60, 1000, "unit/syncer/server/test_updates.py"),
    "server's deltas": Counts("examples", 20, 80, 1000, "unit/syncer/server/test_deltas.py"),
    "server's grants": Counts("examples", 15, 60, 1000, "unit/syncer/server/test_grants.py"),
    "programs on one file": Counts("steps of each", 400, 1000, 200_000, "race/test_shared.py", "shared"),
    "histories of native mounts": Counts("histories per filesystem", 3, 15, 1000, "race/test_native.py", "native"),
    "peer parsers": Counts("hostile inputs", 20_000, 1_050_000, 5_000_000, "fuzz/test_peer_parsers.py", "parsers"),
    "repository parsers": Counts(
        "hostile inputs", 20_000, 1_200_000, 10_000_000, "fuzz/test_repository_parsers.py", "parsers"
    ),
    "kernel requests": Counts("hostile inputs", 10_000, 1_050_000, 5_000_000, "fuzz/test_kernel_requests.py"),
    "hashmaps at once": Counts("blocks each", 1 << 18, 1 << 21, 10_000_000, "integration/test_server_tenants.py"),
    "a file as long as may be": Counts("blocks", 1 << 21, 1 << 24, 1 << 24, "integration/test_server_tenants.py"),
    "sync state": Counts("sequences", 10, 40, 1000, "unit/syncer/state/test_statedb_machine.py"),
    "share index": Counts("sequences", 25, 100, 1000, "unit/syncer/state/test_shareindex.py"),
    "looks by twins": Counts("sequences per filesystem", 2, 40, 1000, "unit/syncer/local/test_twins.py"),
    "sparse hashes": Counts("examples", 20, 60, 1000, "unit/syncer/local/test_filehash.py"),
    "ignore rules": Counts("examples", 30, 150, 1000, "unit/syncer/core/test_ignore.py"),
    "board of blocks": Counts("seeds", 60, 500, 50_000, "unit/syncer/blocks/test_seeds.py"),
    "exchanges": Counts("seeds", 50, 300, 30_000, "simulation/test_exchanges.py"),
    "guide to the LAN": Counts("commands, pasted", 3, 100, 100, "real/test_lan_guide.py"),
    "packages": Counts("kinds", 1, 6, 7, "system/test_package.py"),
    "programs on a LAN": Counts("cases", 3, 18, 18, "integration/test_lan_program.py"),
    "flows in a browser": Counts("flows", 1, 31, 31, "browser/test_roots.py"),
    "demo": Counts("ways to run it", 1, 3, 3, "system/test_demo.py"),
    "share leaks": Counts("ways for a block not to be in the share", 3, 10, 10, "integration/test_share_leaks.py"),
    "scrubs from peers": Counts("block sizes", 1, 3, 3, "integration/test_scrub_peers.py"),
    "trials on a LAN": Counts("trials", 3, 53, 53, "system/test_lan_trials.py"),
    "pulls beside a neighbour": Counts("ways", 1, 6, 6, "integration/test_lan_pulls.py"),
    "stores beside a neighbour": Counts("stores", 1, 3, 3, "integration/test_lan_remotes.py"),
    "choice of peers": Counts("examples", 60, 500, 5000, "unit/syncer/peer/test_swarm.py"),
    "looks at a root": Counts("rounds per kind of root", 6, 20, 400, "contract/test_looks.py"),
    "ways between releases": Counts("which side is the other release", 1, 2, 2, "system/test_release_before.py"),
    "versions of a share": Counts("rounds per remote", 4, 20, 300, "contract/test_engine_writes.py"),
    "servers that go away": Counts("messages each", 2, 12, 40, "contract/test_engine_writes.py"),
    "stores of the contract suites": Counts("besides memory", 1, 4, 4, "contract/test_cloud_client.py"),
    "stores with faults": Counts("calls per kind of store", 60, 400, 4000, "contract/test_store_faults.py"),
    "cuts after edits": Counts("seeds", 1500, 50_000, 1_000_000, f"{_R}/test_chunks.py"),
    "files like others": Counts("seeds", 20, 100, 20_000, f"{_R}/test_alike.py"),
    "merge": Counts("examples", 60, 200, 2000, "unit/syncer/core/test_merge.py"),
    "repository collections": Counts("seeds", 5, 25, 5000, f"{_R}/test_collecting.py"),
    "repository decisions": Counts("examples", 100, 500, 100_000, f"{_R}/test_decisions.py"),
    "repository repackings": Counts("seeds", 4, 25, 5000, f"{_R}/test_repacking.py"),
    "pauses beside collections": Counts("seeds", 10, 40, 20_000, f"{_R}/test_pauses.py"),
    "malicious stores": Counts("seeds", 40, 150, 100_000, f"{_R}/test_malice.py"),
    "repository calls that fail": Counts("percent of them", 20, 50, 100, f"{_R}/test_failures.py"),
    "repository on a faulty store": Counts("seeds", 30, 100, 30_000, f"{_R}/test_failures.py"),
    "repository devices": Counts("seeds", 4, 20, 2000, "unit/syncer/engine/test_repository.py"),
    "repository clients": Counts("seeds", 5, 25, 3000, f"{_R}/test_client.py"),
    "repository views": Counts("examples", 60, 300, 50_000, f"{_R}/test_merge.py"),
    "repository trees": Counts("examples", 60, 300, 20_000, "unit/syncer/remote/repository"),
}


def chosen() -> Effort:
    """The effort of this run.

    Raises:
        SystemExit: The environment asks for one that does not exist.
    """
    name = os.environ.get(VARIABLE) or Effort.EVERYDAY
    try:
        return Effort(name)
    except ValueError:
        raise SystemExit(f"{VARIABLE}={name}: there are {', '.join(Effort)}") from None


def count(name: str) -> int:
    """How much of this the present run does. `make soak --scale` scales what it runs through pytest, too."""
    effort = chosen()
    scale = float(os.environ.get(SCALE, "1")) if effort is Effort.SOAK else 1.0
    return max(1, round(KNOB[name].of(effort) * scale))


def first(name: str, cases: Sequence[T]) -> Sequence[T]:
    """Of a list of cases those that the present run does; the soak does all, or one would never be run."""
    assert len(cases) == KNOB[name].soak, f"{name}: there are {len(cases)} cases, and the table has {KNOB[name].soak}"
    return cases[: count(name)]


def soak(name: str, scale: float = 1.0) -> int:
    """How much of this a part of `make soak` does, at this share of it, and once at least."""
    return max(1, round(KNOB[name].soak * scale))


def table() -> str:
    """The table of docs/dev/testing.md."""
    lines = [
        "| what | counted | everyday | full | soak | test, below `tests/` | part of the soak |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    lines += [
        f"| {name} | {each.what} | {each.everyday:,} | {each.full:,} | {each.soak:,} | `{each.test}` | {each.part} |"
        for name, each in KNOB.items()
    ]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the present table in it."""
    above, _, rest = text.partition(_ABOVE)
    below = rest.partition(_BELOW)[2]
    return f"{above}{_ABOVE}{table()}{_BELOW}{below}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
