"""Mutants that a test kills by its name, where a ring would find them only by luck.

The module is changed while it is imported, in a process of its own, and then the test runs: it must fail. So any module
can be mutated, with whoever imports it. `python -m tests.simulation.named NAME…` does some, by hand or for the test.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec
import pytest

_ROOT: Final = Path(__file__).parents[2]
_CORES: Final = len(os.sched_getaffinity(0))
SURVIVED, KILLED, INAPPLICABLE = 0, 1, 64
_IMPORTED_BY_ALL: Final = (
    "hypothesis",
    "trio",
    "msgspec",
    "lmdb",
    "urllib3",
    "structlog",
    "rich",
    "click",
    "blockfs.blocks.directory",
)


class Named(msgspec.Struct, frozen=True):
    """One change of one module's source, and the test that must object.

    Attributes:
        module: Below `syncer`, with dots.
        old: Occurs in it exactly once.
        test: File below tests/unit/syncer and name of the test.
    """

    name: str
    module: str
    old: str
    new: str
    test: str

    @property
    def path(self) -> str:
        """The module's file below syncer/."""
        return self.module.replace(".", "/") + ".py"

    @property
    def where(self) -> str:
        """The test's file; its name says the same as the mutant's."""
        return self.test.partition("::")[0]


NAMED: Final = (
    Named(
        "the-cursor-passes-what-is-not-recorded",
        "engine.cycle",
        "self.report.failures or frozen or not settled)\n",
        "self.report.failures or frozen)\n",
        "engine/test_ends.py::test_a_root_is_told_that_a_cycle_is_not_settled",
    ),
    Named(
        "what-was-not-told-is-still-there",
        "core.partial.affected",
        "            if not replaced and not self._is_outdated(row.remote):\n",
        "            if not replaced:\n",
        "core/test_affected.py::test_a_version_that_should_have_been_told_and_was_not_is_gone",
    ),
    Named(
        "rows-recorded-between-are-not-waited-for",
        "core.planner.outcome",
        "                if moved and (between := self._recorded_between(nid, node.parent)):\n",
        "                if moved and (between := []):\n",
        "core/test_outcome.py::test_a_row_waits_until_it_is_not_in_itself",
    ),
    Named(
        "who-stands-for-it-is-not-asked-for",
        "core.planner.outcome",
        "        if action.absorbed_by is not None and action.absorbed_by not in self.tree:\n",
        "        if False:\n",
        "core/test_outcome.py::test_what_another_node_stands_for_stays_until_that_is_there",
    ),
    Named(
        "a-listing-from-before-our-writes-is-believed",
        "core.planner.safety",
        "    for mark in (seen, newest):\n",
        "    for mark in (seen,):\n",
        "core/test_safety.py::test_a_listing_from_before_our_own_writes_is_refused",
    ),
    Named(
        "what-moves-over-an-equal-file-is-that-file",
        "core.planner.identify",
        "        self._by_moved_over()\n",
        "",
        "core/test_identify.py::test_what_is_moved_over_an_equal_file_keeps_its_identity",
    ),
    Named(
        "the-oldest-of-moved-over-rows-counts",
        "core.planner.identify",
        "        first, second = self.base.rows[one], self.base.rows[other]\n",
        "        second, first = self.base.rows[one], self.base.rows[other]\n",
        "core/test_identify.py::test_of_two_rows_with_the_identity_of_what_was_moved_over_the_later_one_counts",
    ),
    Named(
        "who-is-elsewhere-comes-before-whose-directory-stays",
        "core.planner.merge",
        "(1 if (self._winner(remote.parent), remote.name) == slot else 2, False, nid)",
        "(2 if (self._winner(remote.parent), remote.name) == slot else 1, False, nid)",
        "core/test_merge.py::test_of_directories_that_become_one_what_was_in_them_keeps_its_name_before_what_moves_in",
    ),
    Named(
        "an-object-comes-before-the-directory-of-its-name",
        "core.planner.merge",
        "(0, remote.kind is not Kind.DIRECTORY, nid)",
        "(0, remote.kind is Kind.DIRECTORY, nid)",
        "engine/test_doubled.py::test_a_name_that_a_file_and_a_folder_have_on_the_server_becomes_two",
    ),
    Named(
        "an-untold-mode-is-no-reason-to-tell-it",
        "core.planner.plan",
        "absorbed=merged.absorbed, untold=untold)",
        "absorbed=merged.absorbed)",
        "engine/test_doubled.py::test_a_marker_that_somebody_made_anew_without_a_mode_is_told_the_mode",
    ),
    Named(
        "a-row-before-the-mode-is-told",
        "core.planner.outcome",
        "        waits = nid in self._to_mark or nid in self._to_tell\n",
        "        waits = nid in self._to_mark\n",
        "core/test_outcome.py::test_a_row_waits_until_the_server_is_told_the_mode_that_its_marker_lacks",
    ),
    Named(
        "park-names-are-cut-anywhere",
        "core.paths",
        "    return prefix + cut_name(name, NAME_BYTES - len(prefix))\n",
        "    return prefix + name[: NAME_BYTES - len(prefix)]\n",
        "engine/test_doubled.py::test_a_long_name_of_wide_characters_is_parked_on_the_server",
    ),
    Named(
        "the-group-is-taken-after-the-barrier",
        "engine.record",
        "        await self._local.barrier()\n",
        "        await self._local.barrier()\n        group, self._waiting = [*group, *self._waiting], []\n",
        "engine/test_record.py::test_what_comes_while_directories_are_made_durable_waits_for_the_next_time",
    ),
    Named(
        "the-checkpoint-of-an-unsettled-cycle-is-kept",
        "engine.cycle",
        "look.directories, gone, undone=undone)\n",
        "look.directories, gone, undone=False)\n",
        "engine/test_ends.py::test_a_root_is_told_that_a_cycle_is_not_settled",
    ),
    Named(
        "what-was-done-is-not-recorded-when-in-doubt",
        "engine.cycle",
        "            await recorder.flush()\n            self._versions",
        "            await recorder.flush() if not pusher.doubtful else None\n            self._versions",
        "engine/test_ends.py::test_a_cycle_in_doubt_of_the_server_records_what_it_did",
    ),
    Named(
        "what-a-write-leaves-alone-is-not-sent-again",
        "engine.push",
        "        return node.meta.overlaid(action.meta)\n",
        "        return action.meta\n",
        "engine/test_ends.py::test_a_write_sends_again_the_metadata_that_it_leaves_alone",
    ),
    Named(
        "ctime-is-not-compared",
        "local.folder.changes",
        "        if not (same_but_ctime(found, expect) if expect.ctime_ns == 0 else found == expect):\n",
        "        if not same_but_ctime(found, expect):\n",
        "local/test_changes.py::test_an_edit_that_hides_itself_from_mtime_and_size_is_not_replaced",
    ),
    Named(
        "evidence-is-trusted-after-utime",
        "local.folder.changes",
        "Applied(tag=tag if meta.mtime_ns is None else replace(tag, ctime_ns=0))",
        "Applied(tag=tag)",
        "local/test_changes.py::test_evidence_of_a_file_whose_mtime_we_set_is_not_trusted",
    ),
    Named(
        "our-own-tag-is-taken-as-found",
        "local.folder.changes",
        "        return found if same_but_ctime(found, staged) else replace(staged, ctime_ns=0)\n",
        "        return found\n",
        "local/test_changes.py::test_a_write_right_after_the_name_was_given_is_not_taken_for_our_own",
    ),
    Named(
        "nobody-looks-after-a-move",
        "local.folder.changes",
        "            if not same_inode(found, expect):\n",
        "            if False:\n",
        "local/test_changes.py::test_a_file_that_takes_the_place_in_the_instant_of_a_move_is_given_it_back",
    ),
    Named(
        "what-was-written-before-a-move-is-taken-for-known",
        "local.folder.changes",
        "Applied(tag=found if is_known else replace(expect, ctime_ns=0))",
        "Applied(tag=found)",
        "local/test_changes.py::test_a_write_in_the_instant_of_a_move_is_looked_at_later",
    ),
    Named(
        "the-folder-of-a-replaced-file-is-not-durable",
        "local.folder.changes",
        '                self.step("exchanged")\n                self._remember(directory)\n',
        '                self.step("exchanged")\n',
        "local/test_changes.py::test_the_barrier_after_a_replace_makes_its_folder_and_its_trash_entry_durable",
    ),
    Named(
        "a-file-of-the-present-tick-is-taken-for-settled",
        "ports.localvalues",
        "    if min(tag.mtime_ns, tag.ctime_ns) < clock_ns or",
        "    if min(tag.mtime_ns, tag.ctime_ns) <= clock_ns or",
        "local/test_changes.py::test_what_was_written_in_the_tick_of_the_look_proves_nothing",
    ),
    Named(
        "what-is-condemned-is-built-on",
        "remote.repository.objects",
        "        avoided = self._condemned | self._gone if self._gone else self._condemned\n",
        "        avoided = self._gone\n",
        "remote/repository/test_collecting.py::test_what_is_condemned_is_sent_anew_by_who_needs_it",
    ),
    Named(
        "a-repacking-takes-all-for-copied",
        "remote.repository.maintenance.repacking",
        "if not self._elsewhere(content, entry, going, sight)]",
        "if False]",
        "remote/repository/test_repacking.py::"
        "test_what_is_needed_of_sparse_packs_moves_and_the_old_ones_go_a_grace_later",
    ),
)


class _Mutating(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Finds one module, and gives it the changed source."""

    def __init__(self, mutant: Named) -> None:
        self.mutant = mutant
        super().__init__(f"syncer.{mutant.module}", str(_ROOT / "syncer" / mutant.path))

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> object:  # type: ignore[override] # a code object
        """Never from a cache: nobody else must get it."""
        source = Path(self.path).read_text()
        return compile(source.replace(self.mutant.old, self.mutant.new), self.path, "exec")


def kill(name: str) -> int:
    """Run a mutant's test with it, in this process; nothing of syncer may have been imported."""
    (mutant,) = (each for each in NAMED if each.name == name)
    finder = _Mutating(mutant)
    if Path(finder.path).read_text().count(mutant.old) != 1:
        print(f"{name}: its pattern does not occur once in {finder.path}")
        return INAPPLICABLE
    assert finder.name not in sys.modules
    sys.meta_path.insert(0, finder)
    test = f"{_ROOT}/tests/unit/syncer/{mutant.test}"
    imported = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is there before its plugin: see `_each`
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "-W", imported]
    # A place of its own: pytest's usual one is where it would first take away what earlier runs have left, for minutes.
    with tempfile.TemporaryDirectory(prefix="named-") as own:
        return int(pytest.main([*options, f"--basetemp={own}/tests", test]))


def survivors(mutants: Sequence[Named] = NAMED) -> list[str]:
    """Those whose test does not fail, with what it said."""
    names = [mutant.name for mutant in mutants]
    shares = [names[core::_CORES] for core in range(_CORES)]

    def run(share: Sequence[str]) -> list[str]:
        command = [sys.executable, "-m", "tests.simulation.named", *share]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        killed = {line.removeprefix("killed ") for line in done.stdout.splitlines() if line.startswith("killed ")}
        return [f"{name}:\n{done.stdout[-3000:]}{done.stderr[-1500:]}" for name in share if name not in killed]

    with ThreadPoolExecutor(_CORES) as pool:
        return [line for lines in pool.map(run, shares) for line in lines]


def _each(names: Sequence[str]) -> None:
    """One after the other, each in a fork: what they all import of others is imported once."""
    for library in _IMPORTED_BY_ALL:
        importlib.import_module(library)
    for name in names:
        sys.stdout.flush()
        code = _forked(name)
        if code == SURVIVED:  # identities are drawn at random: once in a while a wrong order is the right one
            code = _forked(name)
        print(f"killed {name}" if code == KILLED else f"{name}: {code}", flush=True)


def _forked(name: str) -> int:
    child = os.fork()
    if not child:
        os._exit(_ended(name))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _ended(name: str) -> int:
    try:
        return kill(name)
    except BaseException:  # noqa: BLE001 - a fork must not return into its parent's code
        traceback.print_exc()
        return INAPPLICABLE
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    _each(sys.argv[1:])
