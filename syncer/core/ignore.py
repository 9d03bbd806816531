"""Which paths are not synced: gitignore rules of the root and of `.blocksyncignore` files. Pure.

Semantics are gitignore's: in one file the last matching pattern decides; a file further down beats one further up, and
all of them beat the root's own patterns; what is below an ignored directory is ignored, whatever the rules say of it.
Names are bytes, as for git: `?` is one byte.

An ignored path is *untracked*: it is not observed on either side and has no base row. So a change of the rules never
deletes anything: what became ignored stays on both sides, and what is not ignored any more is new on both (union).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from syncer.core.base import BaseIndex
from syncer.core.model import Action, FileStat, Kind, Move, Nid, Park, RelPath, RemoteStat
from syncer.core.paths import PARK_FOLDER, ancestors, is_parked, is_private, join, parse_park_name, split

_SET: Final = re.compile(rb"(?<!\\)\[([!^]?\]?(?:\[:[a-z]+:\]|(?!\[:)[^\]])*\])")
_CLASS: Final = re.compile(rb"\[:([a-z]+):\]")
_CLASSES: Final = {
    b"alnum": b"0-9A-Za-z",
    b"alpha": b"A-Za-z",
    b"blank": b" \t",
    b"digit": b"0-9",
    b"lower": b"a-z",
    b"space": b" \t-\r",
    b"upper": b"A-Z",
    b"xdigit": b"0-9A-Fa-f",
}
"""What git knows by a name within a set; those of marks and what can't be seen are left out."""

if TYPE_CHECKING:  # imported where there is a pattern: most roots have none, and it is a tenth of a command's start
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

IGNORE_FILE: Final = b".blocksyncignore"
"""A file of rules for its directory and everything below. It is synced like any other file."""

_NOBODYS_NAME: Final = RelPath(b"\x01")  # no pattern names it

_BOM: Final = b"\xef\xbb\xbf"
_THROUGH_DIRECTORY: Final = "ps_d"
"""pathspec's group for the slash after what a pattern matched: inside a path, an ancestor was matched."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The pattern that decided.

    Attributes:
        ignored: False for a pattern that begins with `!`.
        source: Folder of the `.blocksyncignore` file; None for the root's own patterns.
        line: Its number, from 1.
        pattern: Its text.
    """

    ignored: bool
    source: RelPath | None
    line: int
    pattern: bytes


class _Pattern(msgspec.Struct, frozen=True):
    line: int
    text: bytes
    compiled: GitIgnoreSpecPattern


class IgnoreRules:
    """The rules of one root. Files of rules are added while the local side is observed; then it is only read."""

    def __init__(self, patterns: Iterable[bytes] = ()) -> None:
        """Begin with the root's own patterns, one line each."""
        self.own = tuple(patterns)
        self._own = _compile(self.own)
        self._layers: dict[RelPath, list[_Pattern]] = {}
        self._texts: dict[RelPath, bytes] = {}
        self._hidden: dict[RelPath, bool] = {}

    def add(self, folder: RelPath, text: bytes) -> None:
        """Take the text of `folder`'s `.blocksyncignore`; empty if there is none any more."""
        if text == self._texts.get(folder, b""):
            return
        self._hidden.clear()
        self._texts[folder] = text
        self._layers[folder] = _compile(text.removeprefix(_BOM).split(b"\n"))
        if not text:
            del self._texts[folder]
        if not self._layers[folder]:
            del self._layers[folder]

    def text(self, folder: RelPath) -> bytes:
        """The text of `folder`'s file of rules, as far as is known; empty if there is none."""
        return self._texts.get(folder, b"")

    def patterns(self, folder: RelPath) -> Iterator[tuple[int, bytes]]:
        """The patterns of `folder`'s file of rules, with the numbers of their lines; no comments, no empty lines."""
        for pattern in self._layers.get(folder, ()):
            yield pattern.line, pattern.text

    def dump(self) -> bytes:
        """All of it, for `load`."""
        return msgspec.msgpack.encode((self.own, sorted(self._texts.items())))

    @classmethod
    def load(cls, raw: bytes) -> IgnoreRules:
        """What `dump` returned.

        Raises:
            ValueError: It is something else.
        """
        own, texts = msgspec.msgpack.decode(raw, type=tuple[tuple[bytes, ...], list[tuple[bytes, bytes]]])
        rules = cls(own)
        for folder, text in texts:
            rules.add(RelPath(folder), text)
        return rules

    def concerned_by(self, actions: Iterable[Action]) -> bool:
        """Whether local actions change files of rules, or may put them elsewhere."""
        for action in actions:
            if split(action.path)[1] == IGNORE_FILE:
                return True
            if isinstance(action, Move | Park) and self._layers:
                return True
        return False

    @property
    def is_empty(self) -> bool:
        """Nothing is ignored."""
        return not self._own and not self._layers

    def ignoring_everything(self) -> Verdict | None:
        """The pattern that ignores all at the top that no other pattern names; None if there is none."""
        verdicts = [self.verdict(_NOBODYS_NAME, directory=directory) for directory in (True, False)]
        return verdicts[1] if all(found is not None and found.ignored for found in verdicts) else None

    @property
    def fingerprint(self) -> str:
        """Names these rules: hex; equal rules in equal places have the same."""
        hasher = hashlib.sha256()
        for folder, patterns in [(b"\0", self._own), *sorted(self._layers.items())]:
            hasher.update(b"%d:%s" % (len(folder), folder))
            for pattern in patterns:
                hasher.update(b"%d:%s" % (len(pattern.text), pattern.text))
        return hasher.hexdigest()

    def verdict(self, path: RelPath, *, directory: bool) -> Verdict | None:
        """The pattern that decides about this very path, without regard to the directories above; None if none does."""
        return self._verdict_from(split(path)[0], path, directory)

    def _verdict_from(self, folder: RelPath, path: RelPath, directory: bool) -> Verdict | None:
        """What the rules of `folder` and above say of a path in it or further down."""
        for source in (folder, *ancestors(folder), RelPath(b"")) if folder else (folder,):
            found = _last(self._layers.get(source, ()), path[len(source) + 1 if source else 0 :], directory)
            if found is not None:
                return _verdict(found, source)
        found = _last(self._own, path, directory)
        return None if found is None else _verdict(found, None)

    def matches(self, path: RelPath, *, directory: bool) -> bool:
        """True if the rules ignore this very path. Who walks from the top and enters nothing ignored needs no more."""
        if self.is_empty or is_private(path):
            return False
        found = self.verdict(path, directory=directory)
        return found is not None and found.ignored

    def hides(self, path: RelPath, *, directory: bool) -> bool:
        """True if this path is not synced: it, or a directory above it, is ignored."""
        if self.is_empty or not path or is_private(path):
            return False
        return self._hides_folder(split(path)[0]) or self.matches(path, directory=directory)

    def deciding(self, path: RelPath, *, directory: bool) -> Verdict | None:
        """The pattern to blame: that of the topmost ignored directory above, else the path's own."""
        for above in reversed(list(ancestors(path))):
            found = self.verdict(above, directory=True)
            if found is not None and found.ignored:
                return found
        return self.verdict(path, directory=directory)

    def _hides_folder(self, folder: RelPath) -> bool:
        trail: list[RelPath] = []
        at = folder
        while at and at not in self._hidden:
            trail.append(at)
            at, _ = split(at)
        hidden = self._hidden[at] if at else False
        for each in reversed(trail):
            hidden = self._hidden[each] = hidden or self.matches(each, directory=True)
        return hidden

    def follow(self, base: BaseIndex, local: Iterable[FileStat], remote: Iterable[RemoteStat]) -> None:
        """Let the rules of a renamed folder count at its other place, too.

        The folder may have its new name on one side only, so far: what is ignored in it is so under both names.
        """
        if not self._layers:
            return
        here = {stat.tag.inode: stat.path for stat in local if split(stat.path)[1] == IGNORE_FILE}
        there = {stat.tag.uuid: stat.path for stat in remote if split(stat.path)[1] == IGNORE_FILE}
        known = dict(self._layers)
        for nid, row in base.rows.items():
            if row.node.name != IGNORE_FILE:
                continue
            was = base.paths.get(nid)
            places = [
                was,
                here.get(row.local.inode) if row.local is not None else None,
                there.get(row.remote.uuid) if row.remote is not None else None,
            ]
            folders = [split(place)[0] for place in places if place is not None]
            source = next((known[folder] for folder in folders if folder in known), None)
            for folder in folders:
                if source is not None and folder not in self._layers:
                    self._layers[folder] = source
        self._hidden.clear()

    def tracked(self, stats: Iterable[RemoteStat]) -> list[RemoteStat]:
        """A listing without what is ignored."""
        if self.is_empty:
            return list(stats)
        return [stat for stat in stats if not self.hides(stat.path, directory=stat.kind is Kind.DIRECTORY)]

    def tracked_here(self, stats: list[FileStat], base: BaseIndex) -> tuple[list[FileStat], frozenset[RelPath]]:
        """What was observed here, without what is ignored in parked folders; and the folders that hold it.

        Patterns name no path of the park: what is in a parked folder is ignored as it is in the folder's own place.
        A parked node itself is always there: else it would stay where nobody sees it.

        Args:
            stats: What was observed, by the rules outside the park.
            base: All rows, those of what became ignored, too.
        """
        parked = [] if self.is_empty else [stat for stat in stats if is_parked(stat.path)]
        if not parked:
            return stats, frozenset()
        tops = {stat.path: _home(stat, base) for stat in parked if split(stat.path)[0] == PARK_FOLDER}
        hidden = {top for top, home in tops.items() if self.hides(home, directory=True)}
        holding: set[RelPath] = set()
        for stat in sorted(parked, key=lambda stat: stat.path):  # a folder before what is in it
            above, _ = split(stat.path)
            if stat.path not in tops and (above in hidden or self._matches_parked(stat, tops)):
                hidden.add(stat.path)
                holding.add(above)
        return [stat for stat in stats if stat.path not in hidden or stat.path in tops], frozenset(holding)

    def _matches_parked(self, stat: FileStat, tops: Mapping[RelPath, RelPath]) -> bool:
        """`matches` for what is below a parked folder."""
        path, directory = stat.path, stat.kind is Kind.DIRECTORY
        top = next((above for above in ancestors(path) if above in tops), None)
        if top is None:
            return True  # its folder is not known: nor is what is ignored in it
        inner = split(path)[0]
        while len(inner) >= len(top):  # its own files of rules: another folder may be in its place by now
            found = _last(self._layers.get(inner, ()), path[len(inner) + 1 :], directory)
            if found is not None:
                return bool(found.compiled.include)
            inner, _ = split(inner)
        verdict = self._verdict_from(split(tops[top])[0], RelPath(tops[top] + path[len(top) :]), directory)
        return verdict is not None and verdict.ignored

    def tracked_base(self, base: BaseIndex) -> tuple[BaseIndex, tuple[Nid, ...]]:
        """The base without what is ignored, and the numbers of the rows that are to be dropped."""
        if self.is_empty:
            return base, ()
        dropped = tuple(
            nid
            for nid, path in base.paths.items()
            if self.hides(path, directory=base.rows[nid].node.kind is Kind.DIRECTORY)
        )
        if not dropped:
            return base, ()
        gone = set(dropped)
        return BaseIndex(row for nid, row in base.rows.items() if nid not in gone), dropped


def _home(parked: FileStat, base: BaseIndex) -> RelPath:
    """Where a parked node comes from; one that nobody knows goes to the top, as `merge` has it."""
    nids = base.by_inode.get(parked.tag.inode, ())
    known = next((base.paths[nid] for nid in nids if nid in base.paths), None)
    return known if known is not None else RelPath(parse_park_name(split(parked.path)[1])[1])


def ignore_file_in(folder: RelPath) -> RelPath:
    """Path of a folder's file of rules."""
    return join(folder, IGNORE_FILE)


def objection(pattern: bytes) -> str | None:
    """Why a line is no pattern; None if it is one."""
    if b"\n" in pattern or b"\0" in pattern:
        return "a pattern is one line"
    return None if _compile([pattern]) else "it is empty, a comment, or no pattern that could match anything"


def _compile(lines: Iterable[bytes]) -> list[_Pattern]:
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        return []
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - see above
    from pathspec.patterns.gitignore import GitIgnorePatternError  # noqa: PLC0415
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415

    patterns: list[_Pattern] = []
    for number, line in numbered:
        text = line.removesuffix(b"\r")
        try:
            spec = GitIgnoreSpec.from_lines([_plain(text).decode("latin-1")])
        except (GitIgnorePatternError, re.error):
            continue  # git takes such lines for patterns that match nothing, or of [z-a] the first letter only
        patterns += [
            _Pattern(number, text, pattern)
            for pattern in spec.patterns
            if isinstance(pattern, GitIgnoreSpecPattern) and pattern.include is not None
        ]
    return patterns


def _plain(text: bytes) -> bytes:
    """`dir/**` as `dir/**/*`, which says the same to git; pathspec's `dir/**` would match `dir` itself, too."""
    body = text if text.endswith(b"\\ ") else text.rstrip(b" ")
    if b"[:" in body:  # pathspec takes them for letters
        body = _SET.sub(lambda found: b"[" + _CLASS.sub(lambda each: _CLASSES.get(each[1], each[0]), found[1]), body)
    for ending in (b"/**", b"/**/"):
        if body.endswith(ending):
            return body.removesuffix(b"/") + b"/*" + ending[3:]
    return body


def _last(patterns: Sequence[_Pattern], path: bytes, directory: bool) -> _Pattern | None:
    text = path.decode("latin-1") + ("/" if directory else "")
    return next((pattern for pattern in reversed(patterns) if _names(pattern.compiled, text)), None)


def _names(pattern: GitIgnoreSpecPattern, text: str) -> bool:
    """True if the pattern matches the path itself. pathspec's own answer also counts directories above it."""
    regex = pattern.regex
    if regex is None:
        return False
    for match in regex.finditer(text):
        through = match.start(_THROUGH_DIRECTORY) if _THROUGH_DIRECTORY in regex.groupindex else -1
        if through >= 0:
            if through == len(text) - 1:
                return True
        else:
            return True
    return False


def _verdict(pattern: _Pattern, source: RelPath | None) -> Verdict:
    return Verdict(ignored=bool(pattern.compiled.include), source=source, line=pattern.line, pattern=pattern.text)


def folders_above(path: RelPath) -> Iterator[RelPath]:
    """The folders whose rules concern `path`, the root first."""
    yield RelPath(b"")
    yield from reversed(list(ancestors(path)))
