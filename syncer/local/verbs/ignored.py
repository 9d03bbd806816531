"""Which names in a root are ignored, and by which pattern. Blocking; bounded in names, folders and time.

It walks as a scan does: from the top, no ignored folder is entered, rules of a folder before its names. Nothing is
examined but directories: what a name is, the listing says.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import msgspec

from syncer.core.ignore import IgnoreRules, Verdict
from syncer.core.model import RelPath
from syncer.core.paths import PRIVATE, join
from syncer.errors import LocalChangedError
from syncer.local.rules import read_rules
from syncer.local.safe_open import open_directory

MOST_FOLDERS: Final = 100_000
"""Folders that wait to be looked at: some ten MB of paths."""


class IgnoredName(msgspec.Struct, frozen=True, kw_only=True):
    """One name that is ignored.

    Attributes:
        path: Below the root.
        is_folder: A folder: with all that is in it, which is not listed.
        verdict: The pattern that ignores it.
    """

    path: RelPath
    is_folder: bool
    verdict: Verdict


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern in a file of rules: the folder of the file, the line's number from 1, its text."""

    folder: RelPath
    number: int
    pattern: bytes


class Ignored(msgspec.Struct, kw_only=True):
    """What a walk found.

    Attributes:
        names: By path.
        lines: Of the files of rules that were met, by folder and number.
        unread: Folders that could not be looked at, or whose rules could not.
        more: Why there may be more names than that; empty: that is all.
        has_more_lines: There are more patterns in files than are listed.
    """

    names: list[IgnoredName]
    lines: list[Line]
    unread: int = 0
    more: str = ""
    has_more_lines: bool = False


class Walk:
    """One look at one root."""

    def __init__(self, root: int, rules: IgnoreRules, most: int, is_over: Callable[[], bool]) -> None:
        """Begin at the top.

        Args:
            root: Descriptor of the root.
            rules: Its own patterns; completed with the files that are met.
            most: Names, and lines, to list at most. The walk ends when there is one name more.
            is_over: Says that it has taken long enough; asked at every name.
        """
        self._root = root
        self._rules = rules
        self._most = most
        self._is_over = is_over
        self._device = os.fstat(root).st_dev
        self._pending: list[RelPath] = [RelPath(b"")]
        self._found = Ignored(names=[], lines=[])

    def run(self) -> Ignored:
        """Look.

        Raises:
            OSError: The root itself can't be listed.
        """
        found = self._found
        while self._pending and not found.more:
            path = self._pending.pop()
            try:
                self._look_into(path)
            except (OSError, LocalChangedError):
                if not path:
                    raise
                found.unread += 1
        found.names.sort(key=lambda each: each.path)
        found.lines.sort(key=lambda each: (each.folder, each.number))
        return found

    def _look_into(self, path: RelPath) -> None:
        descriptor = open_directory(self._root, path)
        try:
            if os.fstat(descriptor).st_dev != self._device:
                return  # a mount point: a scan does not enter it
            self._rules.add(path, read_rules(descriptor, path))
            self._take_lines(path)
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    self._take(path, os.fsencode(entry.name), entry.is_dir(follow_symlinks=False))
                    if self._found.more:
                        return
        finally:
            os.close(descriptor)

    def _take_lines(self, folder: RelPath) -> None:
        found = self._found
        for number, text in self._rules.patterns(folder):
            if len(found.lines) == self._most:
                found.has_more_lines = True
                return
            found.lines.append(Line(folder=folder, number=number, pattern=text))

    def _take(self, folder: RelPath, name: bytes, is_folder: bool) -> None:
        found = self._found
        if self._is_over():
            found.more = "it took too long"
            return
        if not folder and name == PRIVATE:
            return
        path = join(folder, name)
        verdict = self._rules.verdict(path, directory=is_folder)
        if verdict is not None and verdict.ignored:
            if len(found.names) == self._most:
                found.more = f"there are more than {self._most}"
            else:
                found.names.append(IgnoredName(path=path, is_folder=is_folder, verdict=verdict))
        elif is_folder:
            if len(self._pending) == MOST_FOLDERS:
                found.more = "there are too many folders"
            else:
                self._pending.append(path)
