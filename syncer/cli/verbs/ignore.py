"""`blocksync ignore`: what of a root is not synced."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from blockfs.runtime.output import JsonValue, json_line, note, shown, tell
from blockfs.runtime.units import counted
from syncer.cli.paths import PATH
from syncer.cli.registry.roots import LinkedRoot, Registry, encoded_path
from syncer.core.ignore import IGNORE_FILE, IgnoreRules, Verdict, folders_above, objection
from syncer.core.model import RelPath
from syncer.core.paths import join, rel_path
from syncer.errors import LocalChangedError, UsageError
from syncer.local.rules import read_rules
from syncer.local.safe_open import DIRECTORY_FLAGS, open_directory
from syncer.local.verbs.ignored import Ignored, Walk

_LONGEST_S: Final = 20.0
"""A look at names ends then: a person waits for it."""

_MOST: Final = 200


@click.command("ignore")
@click.argument("root", type=PATH)
@click.argument("what", type=click.Choice(["add", "rm", "ls", "check", "names"]), default="ls")
@click.argument("arguments", type=PATH, nargs=-1, metavar="[PATTERN|PATH]...")
@click.option(
    "--most",
    type=click.IntRange(1, 100_000),
    help=f"With `names`: list so many at most, and so many patterns of files (default {_MOST}).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per pattern, path or name.")
def command(root: bytes, what: str, arguments: tuple[bytes, ...], most: int | None, as_json: bool) -> None:
    """Choose what of ROOT is not synced, by patterns as in .gitignore.

    `add` and `rm` change ROOT's own patterns, on this computer only; `ls` shows them; `check` says for paths whether
    they are ignored, and by which pattern; `names` lists names in ROOT that are. Patterns for all computers belong in
    a file .blocksyncignore, in ROOT or in any folder of it. A change never deletes anything: what becomes ignored stays
    on both sides.
    """
    linked = Registry(os.environ).get(root)
    if what in {"ls", "names"} and arguments:
        raise UsageError(f"`blocksync ignore ROOT {what}` takes no {'pattern' if what == 'ls' else 'path'}")
    if what != "names" and most is not None:
        raise UsageError("--most goes with `blocksync ignore ROOT names`")
    if what not in {"ls", "names"} and not arguments:
        raise UsageError(
            f"`blocksync ignore ROOT {what}` needs at least one {'path' if what == 'check' else 'pattern'}"
        )
    if what == "check":
        _check(linked, arguments, as_json=as_json)
        return
    if what == "names":
        _list(linked, most or _MOST, as_json=as_json)
        return
    if what == "add":
        _add(linked, arguments)
    elif what == "rm":
        _remove(linked, arguments)
    _show(linked, as_json=as_json)


def _add(linked: LinkedRoot, patterns: Sequence[bytes]) -> None:
    known = linked.ignore_patterns()
    for pattern in patterns:
        reason = objection(pattern)
        if reason is not None:
            raise UsageError(f"{shown(pattern)} is no pattern: {reason}")
    linked.set_ignore_patterns([*known, *dict.fromkeys(pattern for pattern in patterns if pattern not in known)])


def _remove(linked: LinkedRoot, patterns: Sequence[bytes]) -> None:
    known = linked.ignore_patterns()
    for pattern in patterns:
        if pattern not in known:
            raise UsageError(f"{shown(pattern)} is not among the patterns of {shown(linked.path)}; `ls` shows them")
    linked.set_ignore_patterns([pattern for pattern in known if pattern not in patterns])


def _show(linked: LinkedRoot, *, as_json: bool) -> None:
    patterns = linked.ignore_patterns()
    for pattern in patterns:
        if as_json:
            fields = {"root": shown(linked.path), "pattern": shown(pattern), "encoded": encoded_path(pattern)}
            json_line("ignore-pattern", fields)
        else:
            tell(shown(pattern))
    if not patterns:
        note(f"{shown(linked.path)} has no ignore patterns of its own; {IGNORE_FILE.decode()} files in it count, too")


def _check(linked: LinkedRoot, paths: Sequence[bytes], *, as_json: bool) -> None:
    with _opened(linked) as descriptor:
        for raw in paths:
            path = _inside(linked, raw)
            directory = raw.endswith(b"/") or os.path.isdir(os.path.join(linked.path, path))
            rules = _rules_for(linked, descriptor, path)
            ignored = rules.hides(path, directory=directory)
            _tell(raw, ignored, rules.deciding(path, directory=directory), as_json=as_json)


def _list(linked: LinkedRoot, most: int, *, as_json: bool) -> None:
    end_s = time.monotonic() + _LONGEST_S
    with _opened(linked) as descriptor:
        rules = IgnoreRules(linked.ignore_patterns())
        found = Walk(descriptor, rules, most, lambda: time.monotonic() > end_s).run()
    if as_json:
        _print_lines(linked, found)
    for each in found.names:
        place, text = each.path + (b"/" if each.is_folder else b""), each.verdict
        if as_json:
            fields: dict[str, JsonValue] = {"root": shown(linked.path), "path": shown(place)}
            fields |= {"encoded": encoded_path(place), "file": _file(text), "line": text.line}
            json_line("ignore-name", {**fields, "pattern": shown(text.pattern)}, flush=False)
        else:
            tell(f"{shown(place)}{_because(text)}")
    if as_json:
        ended: dict[str, JsonValue] = {"root": shown(linked.path), "names": len(found.names), "more": found.more}
        json_line("ignore-names", {**ended, "more_lines": found.has_more_lines, "unread": found.unread})
        return
    if not found.names and not found.more:
        note(f"nothing in {shown(linked.path)} is ignored")
    if found.unread:
        note(f"{counted(found.unread, 'folder', 'folders')} could not be looked at")
    if found.more:
        note(f"there may be more: {found.more}")


def _print_lines(linked: LinkedRoot, found: Ignored) -> None:
    for each in found.lines:
        fields: dict[str, JsonValue] = {"root": shown(linked.path), "file": shown(join(each.folder, IGNORE_FILE))}
        json_line("ignore-line", {**fields, "line": each.number, "pattern": shown(each.pattern)}, flush=False)


@contextmanager
def _opened(linked: LinkedRoot) -> Iterator[int]:
    """The root's descriptor."""
    try:
        descriptor = os.open(linked.path, DIRECTORY_FLAGS)
    except OSError as error:
        raise UsageError(f"{shown(linked.path)} can't be looked at ({error.strerror}): is it mounted?") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _inside(linked: LinkedRoot, raw: bytes) -> RelPath:
    """A path as given (absolute, or relative to ROOT) below ROOT; it need not exist."""
    above, name = os.path.split(os.path.join(linked.path, raw).rstrip(b"/"))
    whole = os.path.join(os.path.realpath(above), name)  # the last segment may be a symlink of the root
    if not whole.startswith(linked.path.rstrip(b"/") + b"/"):
        raise UsageError(f"{shown(raw)} is not in {shown(linked.path)}")
    return rel_path(whole[len(linked.path.rstrip(b"/")) + 1 :])


def _rules_for(linked: LinkedRoot, root: int, path: RelPath) -> IgnoreRules:
    rules = IgnoreRules(linked.ignore_patterns())
    for folder in folders_above(path):
        try:
            descriptor = open_directory(root, folder)
        except LocalChangedError:
            break
        try:
            rules.add(folder, read_rules(descriptor, folder))
        finally:
            os.close(descriptor)
    return rules


def _tell(raw: bytes, ignored: bool, verdict: Verdict | None, *, as_json: bool) -> None:
    if as_json:
        file = None if verdict is None else _file(verdict)
        line = None if verdict is None else verdict.line
        pattern = None if verdict is None else shown(verdict.pattern)
        fields: dict[str, JsonValue] = {"path": shown(raw), "ignored": ignored, "file": file}
        json_line("ignore-check", {**fields, "line": line, "pattern": pattern})
        return
    text = "ignored" if ignored else "synced"
    tell(f"{shown(raw)}: {text}{'' if verdict is None else _because(verdict)}")


def _file(verdict: Verdict) -> str | None:
    """The file that a pattern is in; None: it is one of the root's own."""
    return None if verdict.source is None else shown(join(verdict.source, IGNORE_FILE))


def _because(verdict: Verdict) -> str:
    return f"  ({_file(verdict) or 'pattern of the root'}, line {verdict.line}: {shown(verdict.pattern)})"
