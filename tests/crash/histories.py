"""What a crash may leave, worked out from what was done and what was fsynced. Pure.

What was fsynced must be there. What was done since may be there or not; pages, and bytes that a cut took, each for
itself. Names change one after the other: a crash leaves the names of one moment, not earlier than the last fsync.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.crash.pages import PAGE, describe, make_page

Value = tuple[int, int]
"""A page's content: the version written, and how many of its bytes a cut has left."""

HOLE: Final[Value] = (0, 0)


class PagedHistory:
    """One file that is written page by page.

    Args:
        file: Its number.
        may_tear: A page may be part one version, part another: a memory map is written back while it is written to.
    """

    def __init__(self, file: int, *, may_tear: bool = False) -> None:
        self.file = file
        self.may_tear = may_tear
        self.must_exist = False
        self.size = 0
        self._current: dict[int, Value] = {}
        self._allowed: dict[int, set[Value]] = {}  # pages with more than one possible value
        self._sizes = {0}

    def write(self, first: int, count: int, version: int) -> None:
        """Whole pages were written, or are just being written."""
        for page in range(first, first + count):
            self._possible(page).add((version, PAGE))
            self._current[page] = (version, PAGE)
        self._resize(max(self.size, (first + count) * PAGE))

    def truncate(self, size: int) -> None:
        """The file was cut or grown, or is just being so."""
        for page in [page for page in self._current if (page + 1) * PAGE > size]:
            left = max(0, size - page * PAGE)
            possible = self._possible(page)
            possible.update([_cut(value, left) for value in possible])
            self._current[page] = _cut(self._current[page], left)
        self._resize(size)

    def synced(self) -> None:
        """An fsync has returned."""
        self.must_exist = True
        self._allowed.clear()
        self._sizes = {self.size}

    def frozen(self) -> PagedHistory:
        """The history of a file that has exactly this content for good: a clone."""
        copy = PagedHistory(self.file)
        copy.size, copy._current, copy._sizes = self.size, dict(self._current), {self.size}
        return copy

    def problems(self, data: bytes | None) -> Iterable[str]:
        """What is wrong with a content; None: there is no such file."""
        if data is None:
            if self.must_exist:
                yield f"file {self.file} is gone"
            return
        if not min(self._sizes) <= len(data) <= max(self._sizes):
            yield f"file {self.file} has {len(data)} bytes, not {min(self._sizes)} to {max(self._sizes)}"
        for page in range(-(-len(data) // PAGE)):
            found = data[page * PAGE : (page + 1) * PAGE]
            allowed = self._allowed.get(page, {self._current.get(page, HOLE)})
            if not self._is_one_of(found, page, allowed):
                yield f"file {self.file} page {page} is {describe(found)}, not one of {sorted(allowed)}"

    def _possible(self, page: int) -> set[Value]:
        return self._allowed.setdefault(page, {self._current.get(page, HOLE)})

    def _resize(self, size: int) -> None:
        self.size = size
        self._sizes.add(size)

    def _is_one_of(self, found: bytes, page: int, allowed: set[Value]) -> bool:
        contents = [self._content(page, value)[: len(found)] for value in sorted(allowed, reverse=True)]
        if found in contents:
            return True
        return self.may_tear and any(_is_torn(found, one, other) for one, other in product(contents, repeat=2))

    def _content(self, page: int, value: Value) -> bytes:
        version, left = value
        return (make_page(self.file, page, version)[:left] if left else b"").ljust(PAGE, b"\0")


def _cut(value: Value, left: int) -> Value:
    kept = min(value[1], left)
    return (value[0], kept) if kept else HOLE


def _is_torn(found: bytes, one: bytes, other: bytes) -> bool:
    """Whether it begins as one content and ends as the other."""
    split = next((at for at in range(len(found)) if found[at] != one[at]), len(found))
    return found[split:] == other[split:]


class Entry(msgspec.Struct, frozen=True):
    """What a name stands for.

    Attributes:
        kind: "d", "f" or "l".
        number: Of a file's content, or a symlink's target.
        pages: A file's length.
        is_complete: The content was fsynced or renamed over another file: no part of it may lack.
        tag: Value of the extended attribute `user.tag`.
        mode: Permissions.
    """

    kind: str
    number: int = 0
    pages: int = 0
    is_complete: bool = False
    tag: str = ""
    mode: int = 0o755


class Found(msgspec.Struct, frozen=True):
    """What a name was found to be after the crash."""

    kind: str
    data: bytes
    tag: str
    mode: int

    def is_like(self, entry: Entry) -> bool:
        """Whether it may be what the entry has become by a crash."""
        if (self.kind, self.tag) != (entry.kind, entry.tag):
            return False
        if self.kind == "l":
            return self.data == str(entry.number).encode()
        if self.mode != entry.mode:
            return False
        return self.kind == "d" or self._is_content_of(entry)

    def _is_content_of(self, entry: Entry) -> bool:
        if len(self.data) > entry.pages * PAGE or (entry.is_complete and len(self.data) < entry.pages * PAGE):
            return False
        for at in range(0, len(self.data), PAGE):
            found = self.data[at : at + PAGE]
            absent = not entry.is_complete and not found.strip(b"\0")
            if not absent and found != make_page(entry.number, at // PAGE, 1)[: len(found)]:
                return False
        return True


class NamesHistory:
    """The names below one folder."""

    def __init__(self) -> None:
        self._states: list[dict[str, Entry]] = [{}]

    @property
    def now(self) -> dict[str, Entry]:
        """The names as the one who works with them sees them."""
        return self._states[-1]

    def make(self, path: str, entry: Entry) -> None:
        """A new name, or another entry for a name."""
        self._states.append({**self.now, path: entry})

    def change(self, path: str, **changes: object) -> None:
        """Other attributes, for all names of the same file."""
        old = self.now[path]
        new = replace(old, **changes)  # type: ignore[arg-type]
        same = [
            name
            for name, entry in self.now.items()
            if name == path or (old.kind == entry.kind == "f" and entry.number == old.number)
        ]
        self._states.append({**self.now, **dict.fromkeys(same, new)})

    def rename(self, old: str, new: str) -> None:
        """Move a file, or a folder with all below; over another file, its content is complete."""
        moved = {}
        for path, entry in self.now.items():
            if path == old or path.startswith(old + "/"):
                over = new in self.now and entry.kind == "f"
                moved[new + path[len(old) :]] = replace(entry, is_complete=entry.is_complete or over)
        kept = {path: entry for path, entry in self.now.items() if path != old and not path.startswith(old + "/")}
        self._states.append({**kept, **moved})

    def remove(self, path: str) -> None:
        """Unlink or rmdir."""
        self._states.append({name: entry for name, entry in self.now.items() if name != path})

    def synced(self) -> None:
        """An fsync that covers the names has returned."""
        del self._states[:-1]

    def problems(self, found: dict[str, Found]) -> Iterable[str]:
        """What is wrong with the names found: they are of no moment since the last fsync."""
        if any(self._is_state(found, state) for state in reversed(self._states)):
            return
        yield f"names of no moment: {sorted(found)}; nearest moment: {self._nearest(found)}"

    def _is_state(self, found: dict[str, Found], state: dict[str, Entry]) -> bool:
        return found.keys() == state.keys() and all(found[path].is_like(entry) for path, entry in state.items())

    def _nearest(self, found: dict[str, Found]) -> str:
        def differences(state: dict[str, Entry]) -> list[str]:
            names = [f"{path} differs" for path in found.keys() ^ state.keys()]
            return names + [
                f"{path}: {entry}, not {found[path].kind} {found[path].tag} {oct(found[path].mode)} "
                f"{len(found[path].data)} bytes {describe(found[path].data[:PAGE])}"
                for path, entry in state.items()
                if path in found and not found[path].is_like(entry)
            ]

        return str(min((differences(state) for state in self._states), key=len)[:5])
