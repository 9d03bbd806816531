"""`blocksync conflicts` and `resolve` on folders and volumes."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from syncer.core.conflict import parse_conflict_name
from tests.integration.syncing import Sync, content, in_conflict

LONG = "n" * 250 + ".img"


@pytest.mark.parametrize("name", ["d/report.txt", f"d/{LONG}"])
def test_a_conflict_is_listed_with_who_when_and_whether_it_still_matters(
    sync: Sync, roots: tuple[Path, Path], name: str
) -> None:
    _, second = roots
    copy = in_conflict(sync, roots, name)
    for root in roots:
        (line,) = sync("conflicts", root, "--json")
        assert (line["root"], line["path"], line["original"]) == (str(root), f"d/{copy.name}", name)
        assert (line["size_bytes"], line["original_size_bytes"], line["differs"]) == (16, 12, True)
        assert re.fullmatch(r"\d{8}T\d{6}Z", line["utc"])
        assert line["host"] in copy.name
        assert line["original_host"] == (None if LONG in name else line["host"])  # both are on this machine
    assert len(sync("conflicts", "--json")) == 2
    sync("conflicts", second)
    assert copy.name in sync.out
    (second / name).write_bytes(b"mine, and longer")
    assert sync("conflicts", second, "--json")[0]["differs"] is False
    (second / name).unlink()
    (line,) = sync("conflicts", second, "--json")
    assert (line["original"], line["differs"]) == (None, None)
    copy.unlink()
    assert sync("conflicts", second, "--json") == []
    sync("conflicts", second)
    assert sync.err == "no conflict copies\n"


def test_the_version_with_the_name_is_of_the_device_that_wrote_it(
    sync: Sync, roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = roots
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "desk")
        (first / "file").write_bytes(b"both know this")
        sync.reconcile(first)
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "laptop")
        sync.reconcile(second)
        (second / "file").write_bytes(b"of the laptop")
        with monkeypatch.context() as inner:
            inner.setattr(socket, "gethostname", lambda: "desk")
            (first / "file").write_bytes(b"of the desk")
            sync.reconcile(first)
        sync.reconcile(second, expect=4)
        (line,) = sync("conflicts", second, "--json")
        assert (line["host"], line["original_host"]) == ("laptop", "desk")
        (second / "file").write_bytes(b"of the laptop, since")
        (line,) = sync("conflicts", second, "--json")
        assert (line["host"], line["original_host"]) == ("laptop", "laptop")
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "desk")
        sync.reconcile(first)
        (line,) = sync("conflicts", first, "--json")
        assert (line["host"], line["original_host"]) == ("laptop", "desk")


@pytest.mark.parametrize(
    ("take", "kept", "given_up"),
    [("remote", b"the server's", b"mine, and longer"), ("local", b"mine, and longer", b"the server's")],
)
@pytest.mark.parametrize("by_original", [False, True])
def test_one_version_is_taken_and_the_other_is_in_the_trash_everywhere(
    sync: Sync, roots: tuple[Path, Path], take: str, kept: bytes, given_up: bytes, by_original: bool
) -> None:
    first, second = roots
    copy = in_conflict(sync, roots)
    sync("resolve", second / "d/report.txt" if by_original else copy, "--take", take)
    assert content(second) == {"d": "folder", "d/report.txt": kept}
    (gone,) = sync("trash", "ls", second, "--json")[:1]
    assert gone["path"] == ("d/report.txt" if take == "local" else f"d/{copy.name}")
    assert gone["why"] == "resolved"
    for root in (second, first):
        sync.reconcile(root)
    assert content(first) == content(second) == {"d": "folder", "d/report.txt": kept}
    for root in roots:
        assert given_up in [path.read_bytes() for path in (root / ".blocksync/trash").glob("*/item")]
    assert sync("conflicts", "--json") == []
    sync.at_rest(*roots)


def test_both_versions_can_stay_as_ordinary_files(sync: Sync, roots: tuple[Path, Path]) -> None:
    first, second = roots
    copy = in_conflict(sync, roots)
    name = parse_conflict_name(copy.name.encode())
    assert name is not None
    (second / f"d/report ({name.host} {name.utc}).txt").write_bytes(b"in the way")
    sync("resolve", copy, "--take", "both")
    for root in (second, first):
        sync.reconcile(root)
    assert content(first) == content(second) == {
        "d": "folder",
        "d/report.txt": b"the server's",
        f"d/report ({name.host} {name.utc}).txt": b"in the way",
        f"d/report ({name.host} {name.utc} 2).txt": b"mine, and longer",
    }  # fmt: skip
    assert sync("conflicts", "--json") == []


def test_a_copy_whose_original_is_gone_can_have_the_name_but_not_be_given_up(
    sync: Sync, roots: tuple[Path, Path]
) -> None:
    _, second = roots
    copy = in_conflict(sync, roots)
    (second / "d/report.txt").unlink()
    sync("resolve", copy, "--take", "remote", expect=2)
    assert "the only version left" in sync.err
    sync("resolve", copy, "--take", "local")
    assert content(second) == {"d": "folder", "d/report.txt": b"mine, and longer"}


def test_what_is_no_conflict_is_refused(sync: Sync, roots: tuple[Path, Path]) -> None:
    _, second = roots
    copy = in_conflict(sync, roots)
    (second / "other").write_bytes(b"")
    sync("resolve", second / "other", "--take", "local", expect=10)
    sync("resolve", second / "not there", "--take", "local", expect=10)
    sync("resolve", copy, expect=2)
    sync("resolve", copy, "--take", "mine", expect=2)
    other = copy.with_name(copy.name.replace(")", " 2)"))
    other.write_bytes(b"a second copy")
    sync("resolve", second / "d/report.txt", "--take", "local", expect=2)
    assert "name one" in sync.err
    folder = copy.with_name(copy.name.replace(")", " 3)"))
    folder.mkdir()
    (folder / "inner").write_bytes(b"kept")
    sync("resolve", folder, "--take", "remote", expect=2)
    assert "is a folder" in sync.err
    assert (folder / "inner").read_bytes() == b"kept"


def test_links_and_equal_sizes_are_compared_by_what_they_hold(sync: Sync, roots: tuple[Path, Path]) -> None:
    _, second = roots
    mark = " (conflict pc 20260101T000000Z 0123ab)"
    (second / "link").symlink_to("one")
    (second / f"link{mark}").symlink_to("two")
    (second / "file").write_bytes(b"a" * 3_000_000)
    (second / f"file{mark}").write_bytes(b"a" * 2_999_999 + b"b")
    (second / "same").write_bytes(b"a")
    (second / f"same{mark}").write_bytes(b"a")
    sync.reconcile(second)
    found = {line["original"]: line["differs"] for line in sync("conflicts", second, "--json")}
    assert found == {"link": True, "file": True, "same": False}
