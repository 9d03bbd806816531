"""Failures and their exit codes are one table: what is documented, and what the classes of errors say, is the same."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from blockfs import errors as blockfs_errors
from blockfs.errors import FULL, ExpectedError
from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import HOST, code_of
from syncer import errors as syncer_errors
from syncer.errors import EXPECTED

PROJECT = Path(__file__).parents[3]
REFERENCE = (PROJECT / "docs/reference/exit-codes.md").read_text()


def test_the_reference_has_every_exit_code_with_its_meaning() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*?) \| ", REFERENCE, re.MULTILINE)
    assert rows == [(str(code.value), code.meaning) for code in ExitCode]


def test_the_reference_has_the_errors_of_the_host() -> None:
    codes = defaultdict(list)
    for number, code in HOST.items():
        codes[code].append(errno.errorcode[number])
    rows = re.findall(r"^\| ([A-Z, ]+) \| (\d+) \|$", REFERENCE, re.MULTILINE)
    assert sorted(rows) == sorted((", ".join(sorted(names)), str(int(code))) for code, names in codes.items())


def test_the_man_page_has_every_exit_code() -> None:
    page = subprocess.run(
        [sys.executable, PROJECT / "scripts/manpages.py", "blocksync"], capture_output=True, text=True, check=True
    )
    assert [code for code in ExitCode if f".TP\n{code.value}\n" not in page.stdout] == []


def kinds(kind: type[ExpectedError]) -> Iterator[type[ExpectedError]]:
    """It, and what is derived from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from kinds(derived)


def test_every_expected_failure_has_a_code_of_the_table() -> None:
    """A number would be a second table."""
    for kind in {*kinds(ExpectedError)} - {ExpectedError}:
        assert isinstance(kind.exit_code, ExitCode), kind
        assert issubclass(kind, EXPECTED), kind
    sources = [path for package in ("blockfs", "syncer") for path in (PROJECT / package).rglob("*.py")]
    assert [path for path in sources if re.search(r"exit_code[^=\n]* = -?\d|exit_code=\d", path.read_text())] == []


def test_what_both_packages_name_alike_ends_alike() -> None:
    """A volume that is locked and a root that is locked are one thing to whoever reads the code."""
    names = {name for name in vars(blockfs_errors) if name.endswith("Error")} & set(vars(syncer_errors))
    assert len(names - {"BlockfsError", "ExpectedError"}) >= 6
    for name in names:
        assert getattr(blockfs_errors, name).exit_code == getattr(syncer_errors, name).exit_code


def test_full_is_full_whoever_says_it() -> None:
    for number, kind in FULL.items():
        assert code_of(OSError(number, "")) == code_of(kind("")) == ExitCode.NO_SPACE
        assert kind.errno == number
    assert code_of(syncer_errors.NoSpaceError("")) == ExitCode.NO_SPACE
    assert code_of(syncer_errors.OverQuotaError("")) == ExitCode.NO_SPACE
