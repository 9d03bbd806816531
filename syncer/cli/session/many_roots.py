"""Several roots in one command: one that fails, or whose record can't be read, does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from blockfs.exitcodes import ExitCode
from blockfs.runtime.failures import code_of, said
from blockfs.runtime.output import json_line, shown
from blockfs.runtime.terminal import complain
from syncer.cli.failures import ToldError
from syncer.cli.registry.roots import BadRecord, Linked, LinkedRoot
from syncer.errors import EXPECTED

_FIRST_HARD: Final = 10  # exit codes from here on say that a root's work was broken off


def worst(codes: Sequence[int]) -> int:
    """The exit code of several roots: the first broken-off one's, else partly done, conflict, done."""
    for code in codes:
        if code == ExitCode.UNEXPECTED or code >= _FIRST_HARD:
            return code
    return min((code for code in codes if code), default=int(ExitCode.DONE))


def for_each(linked: Linked, work: Callable[[LinkedRoot], int | None], *, alone: bool, as_json: bool) -> int:
    """Work on each root, then tell of the records that can't be read.

    Args:
        linked: The roots.
        work: Does one; returns its exit code, None for 0.
        alone: One root was asked for: its errors are the caller's, who finds them below a ToldError if `as_json`.
        as_json: Tell errors on stdout, too.

    Returns:
        The exit code of all.
    """
    codes = []
    for root in linked.roots:
        try:
            codes.append(work(root) or 0)
        except EXPECTED as error:
            codes.append(code_of(error))
            if as_json:
                json_line("error", {"root": shown(root.path), "exit_code": codes[-1], "message": said(error)})
            if alone:
                raise (ToldError() if as_json else error) from error
            complain(f"{shown(root.path)}: {said(error)}")
    return worst([*codes, *tell_bad(linked.bad, as_json=as_json)])


def tell_bad(records: Iterable[BadRecord], *, as_json: bool) -> list[int]:
    """Name the records that can't be read.

    Returns:
        An exit code for each.
    """
    codes = []
    for bad in records:
        codes.append(bad.error.exit_code)
        complain(str(bad.error))
        if as_json:
            json_line("error", {"root": None, "record": bad.path, "exit_code": codes[-1], "message": str(bad.error)})
    return codes
