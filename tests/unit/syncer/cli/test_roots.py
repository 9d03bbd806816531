from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockfs.exitcodes import ExitCode
from syncer.cli.registry.roots import FORMAT, LinkedRoot, Registry, RootRecord, encoded_path, make_private
from syncer.cli.session.many_roots import worst
from syncer.cli.session.opening import read_token
from syncer.errors import CorruptionError, FormatTooNewError, NotFoundError, UsageError
from syncer.local.folder.identity import Folder


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry({"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_DATA_HOME": str(tmp_path / "data")})


def link(registry: Registry, path: bytes, uuid: str = "u1") -> LinkedRoot:
    folder = Folder(uuid=uuid, ino=3, device=4, filesystem=5)
    record = RootRecord(
        format=FORMAT, uuid=uuid, path=encoded_path(path), url="pithos+http://h/a/c", block_size=65536,
        folder=folder, volume_uuid=None,
    )  # fmt: skip
    return registry.write(record, "secret")


def test_a_written_root_is_found_by_its_path_whatever_bytes_that_has(registry: Registry) -> None:
    path = b"/some/caf\xe9 folder"
    written = link(registry, path)
    found = registry.get(path)
    assert found == written
    assert (found.path, found.secret()) == (path, "secret")
    assert os.stat(os.path.join(found.state, "token")).st_mode & 0o777 == 0o600


def test_nobody_else_can_list_what_is_linked(registry: Registry, tmp_path: Path) -> None:
    """Breaks when only the innermost folder is private, or when folders of before stay open."""
    before = os.umask(0)
    try:
        root = link(registry, b"/r")
        make_private(os.path.dirname(root.data), root.data)
        folders = [Path(root.state), *Path(root.state).parents[:2], Path(root.data), Path(root.data).parent]
        assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 5
        for folder in folders:
            folder.chmod(0o755)
        with registry.watching():
            assert folders[2].stat().st_mode & 0o777 == 0o700
        link(registry, b"/r")
        assert [folder.stat().st_mode & 0o777 for folder in folders[:3]] == [0o700] * 3
    finally:
        os.umask(before)


def test_a_removed_root_leaves_nothing(registry: Registry, tmp_path: Path) -> None:
    root = link(registry, b"/r")
    os.makedirs(root.blocks)
    registry.remove(root)
    assert registry.all() == []
    assert not os.path.exists(root.state)
    assert not os.path.exists(root.data)
    with pytest.raises(NotFoundError):
        registry.get(b"/r")


def test_what_a_broken_off_link_left_is_no_root(registry: Registry) -> None:
    root = link(registry, b"/r")
    os.unlink(os.path.join(root.state, "root.json"))
    assert registry.all() == []


@pytest.mark.parametrize("path", [b"/a/b/c", b"/a", b"/"])
def test_roots_that_lie_in_each_other_are_refused(registry: Registry, path: bytes) -> None:
    link(registry, b"/a/b")
    registry.refuse_overlap(b"/a/bc")
    registry.refuse_overlap(b"/a/b")
    with pytest.raises(UsageError):
        registry.refuse_overlap(path)


@pytest.mark.parametrize("below", ["", "state", "state/blocksync/roots", "data/blocksync/u"])
def test_a_root_that_holds_our_own_state_is_refused(registry: Registry, tmp_path: Path, below: str) -> None:
    """Breaks when somebody links the home directory: every cycle sends its own state, and the token with it."""
    registry.refuse_overlap(os.fsencode(tmp_path / "files"))
    with pytest.raises(UsageError, match="own files"):
        registry.refuse_overlap(os.fsencode(tmp_path / below))


def test_records_of_newer_versions_and_damaged_ones_are_named(registry: Registry) -> None:
    root = link(registry, b"/r")
    record = os.path.join(root.state, "root.json")
    for text, error in (
        (b'{"format":99,"x":1}', FormatTooNewError),
        (b"{", CorruptionError),
        (b'{"format":1}', CorruptionError),
        (Path(record).read_bytes().replace(b"http", b"\xff"), CorruptionError),
    ):
        Path(record).write_bytes(text)
        with pytest.raises(error, match=r"root\.json"):
            registry.all()
        (bad,) = registry.look().bad
        assert (bad.uuid, bad.path, type(bad.error)) == ("u1", record, error)


def test_a_bad_record_concerns_no_other_root(registry: Registry) -> None:
    good, bad = link(registry, b"/good", "u1"), link(registry, b"/bad", "u2")
    record = os.path.join(bad.state, "root.json")
    os.unlink(record)
    os.mkdir(record)
    linked = registry.look()
    assert (linked.roots, [each.path for each in linked.bad]) == ([good], [record])
    assert registry.chosen(None).roots == [good]
    assert registry.chosen(b"/good").roots == [registry.by_uuid("u1")] == [good]
    assert registry.containing(b"/good/file")[0] == good
    calls = (
        lambda: registry.get(b"/bad"),
        lambda: registry.by_uuid("u2"),
        lambda: registry.containing(b"/bad/file"),
        lambda: registry.refuse_overlap(b"/else"),
    )
    for call in calls:
        with pytest.raises(CorruptionError, match=r"root\.json, the record of a linked root, can't be read"):
            call()


def test_relative_xdg_folders_count_as_unset(tmp_path: Path) -> None:
    registry = Registry({"HOME": str(tmp_path), "XDG_STATE_HOME": "relative", "XDG_DATA_HOME": ""})
    assert registry.place("u") == (
        str(tmp_path / ".local/state/blocksync/roots/u"),
        str(tmp_path / ".local/share/blocksync/u"),
    )


def test_the_accounts_own_token_of_a_file_counts_then_the_first_then_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# mine\n\nfirst alice\nsecond bob\n")
    assert read_token(str(file), {"BLOCKSYNC_TOKEN": "other"}, "alice") == "first"
    assert read_token(str(file), {}, "bob") == "second"
    assert read_token(str(file), {}, "who-shares-with-alice") == "first"
    assert read_token(None, {"BLOCKSYNC_TOKEN": " other\n"}, "alice") == "other"
    with pytest.raises(UsageError, match="BLOCKSYNC_TOKEN"):
        read_token(None, {}, "alice")
    with pytest.raises(NotFoundError):
        read_token(str(tmp_path / "nothing"), {}, "alice")
    file.write_bytes(b"\xff\xfe binary")
    with pytest.raises(UsageError, match="is no text"):
        read_token(str(file), {}, "alice")
    file.write_text("\n")
    with pytest.raises(UsageError):
        read_token(str(file), {}, "alice")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 4, 3], 3),
        ([4, 0], 4),
        ([3, 13, 18], 13),
        ([1, 3], 1),
        ([3, 15], 15),
    ],
)
def test_the_exit_code_of_several_roots_is_that_of_the_worst(codes: list[int], expected: int) -> None:
    assert worst(codes) == ExitCode(expected)
