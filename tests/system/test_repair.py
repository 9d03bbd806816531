"""fsck and scrub of damaged volumes by the command line: what is repaired, what is lost, what is refused."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from pathlib import Path

import pytest

from blockfs.blocks.environment import close_environment
from blockfs.blocks.layout import FORMAT as BLOCKS_FORMAT
from blockfs.tree.environment import open_tables, open_tree_environment
from blockfs.tree.schema import FORMAT, META_FORMAT, Table, encode_format, u64
from syncer.cli import main as entry
from tests.conftest import Mounted
from tests.system.machines import Machines

DATA = random.Random(7).randbytes(5 << 20)


@pytest.fixture
def filled(mounted: Mounted) -> Mounted:
    """An unmounted volume with a large file in a folder, a copy of its begin, and staged data."""
    folder = mounted.path / "folder"
    folder.mkdir()
    (folder / "large").write_bytes(DATA)
    (mounted.path / "begin").write_bytes(DATA[:100_000])
    mounted.run("flush", mounted.path)
    with (mounted.path / "begin").open("ab", buffering=0) as file:
        file.write(b"staged")
        os.fsync(file.fileno())
    mounted.umount()
    return mounted


def fsck(mounted: Mounted, *options: str, expect: int = 0) -> dict[str, object]:
    result: dict[str, object] = mounted.run("fsck", mounted.volume, "--json", *options, expect=expect).lines[0]
    return result


def whole(mounted: Mounted) -> bool:
    mounted.remount()
    found = (mounted.path / "folder" / "large").read_bytes() == DATA
    found &= (mounted.path / "begin").read_bytes() == DATA[:100_000] + b"staged"
    mounted.umount()
    return found


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_a_lost_index_is_made_anew(filled: Mounted, damage: str) -> None:
    index = filled.volume / "blocks" / "index"
    if damage == "gone":
        shutil.rmtree(index)
    else:
        (index / "data.mdb").write_bytes(b"garbage" * 10_000)
    assert "--repair" in filled.run("fsck", filled.volume, expect=15).stderr
    found = fsck(filled, "--repair")
    assert [finding["kind"] for finding in found["findings"]] == ["block-index"]  # type: ignore[attr-defined]
    assert fsck(filled)["clean"] is True
    assert whole(filled)


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_lost_payload_is_found_and_no_new_data_are_taken_for_it(filled: Mounted, damage: str) -> None:
    """A row of a block that is gone would swallow the next write of the same content."""
    (segment,) = (filled.volume / "blocks" / "segments").glob("*.seg")
    if damage == "gone":
        segment.unlink()
    else:
        os.truncate(segment, 1 << 20)
    found = fsck(filled, expect=15)["findings"]
    assert [(finding["kind"], segment.name in finding["message"]) for finding in found] == [("segment", True)]  # type: ignore[attr-defined]
    filled.remount()
    assert fsck(filled, expect=15)["findings"] == found
    filled.umount()
    repaired = fsck(filled, "--repair", expect=15)
    assert {"folder/large"} <= {loss["path"] for loss in repaired["lost"]}  # type: ignore[attr-defined]
    filled.remount()
    (filled.path / "begin").unlink()  # what is staged of it can't be sealed without the block around it
    (filled.path / "again").write_bytes(DATA)
    filled.umount("--seal")
    filled.remount()
    assert (filled.path / "again").read_bytes() == DATA
    assert (filled.path / "folder" / "large").read_bytes() == DATA


def test_damaged_and_lost_sidecars_and_headers_are_written_again(filled: Mounted) -> None:
    segments = filled.volume / "blocks" / "segments"
    (sidecar,) = segments.glob("*.idx")
    (segment,) = segments.glob("*.seg")
    sidecar.unlink()
    with segment.open("r+b") as file:
        file.write(b"damaged")
    kinds = [finding["kind"] for finding in fsck(filled, "--repair")["findings"]]  # type: ignore[attr-defined]
    assert kinds == ["segment-header", "sidecar"]
    shutil.rmtree(filled.volume / "blocks" / "index")
    fsck(filled, "--repair")
    assert whole(filled)


def test_lost_blocks_are_named_with_their_bytes_and_stay_unreadable(filled: Mounted) -> None:
    block = 64 << 10
    (segment,) = (filled.volume / "blocks" / "segments").glob("*.seg")
    data = segment.read_bytes()
    at = data.index(DATA[40 * block : 40 * block + 1000])
    segment.write_bytes(data[: at + 10] + b"?" + data[at + 11 :])
    scrubbed = filled.run("scrub", filled.volume, "--json", expect=15).lines[0]
    assert scrubbed["paths"] == ["folder/large"]
    found = fsck(filled, "--repair", expect=15)
    (lost,) = found["lost"]  # type: ignore[misc]
    assert (lost["path"], lost["start"], lost["end"]) == ("folder/large", 40 * block, 41 * block)
    filled.remount()
    with (filled.path / "folder" / "large").open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), block, 39 * block) == DATA[39 * block : 40 * block]
        with pytest.raises(OSError, match="Input/output"):
            os.pread(file.fileno(), 10, 40 * block)
    log = (filled.volume / "mount.log").read_text()
    (line,) = [entry for entry in map(json.loads, log.splitlines()) if entry["event"] == "request.failed"][:1]
    assert "folder/large" in line["path"]
    assert scrubbed["corrupt"][0] in line["reason"]
    with (filled.path / "folder" / "large").open("r+b") as file:
        file.seek(40 * block)
        file.write(DATA[40 * block : 41 * block])
    filled.umount("--seal")
    assert fsck(filled)["clean"] is True
    assert whole(filled)


def test_what_is_repaired_in_a_snapshot_stays_read_only_and_in_it(filled: Mounted) -> None:
    filled.remount()
    filled.run("snapshot", "create", filled.path, "kept")
    kept = filled.path / ".snapshots" / "kept" / "folder"
    lost = [kept.stat().st_ino, (kept / "large").stat().st_ino]
    filled.umount()
    path = os.fsencode(filled.volume / "tree")
    environment = open_tree_environment(path)
    inodes = open_tables(environment, path)[Table.INODES]
    with environment.begin(write=True) as transaction:
        for ino in lost:
            assert transaction.delete(u64(ino), db=inodes)
    close_environment(environment)
    found = fsck(filled, "--repair", expect=15)
    assert {entry["path"] for entry in found["lost"]} == {".snapshots/kept/folder", ".snapshots/kept/folder/large"}  # type: ignore[attr-defined]
    assert fsck(filled)["clean"] is True
    filled.remount()
    assert [kept.stat().st_ino, (kept / "large").stat().st_ino] == lost
    assert (kept / "large").read_bytes() == DATA
    for change in (
        lambda: (kept / "large").open("r+b"),
        lambda: (kept / "large").chmod(0o777),
        (kept / "new").touch,
        (kept / "large").unlink,
    ):
        with pytest.raises(OSError, match="Read-only"):
            change()
    filled.run("snapshot", "delete", filled.path, "kept")
    filled.umount()
    assert fsck(filled)["clean"] is True
    assert whole(filled)


@pytest.mark.parametrize("state", ["mounted", "unmounted"])
def test_scrub_fetches_blocks_again_from_another_volume(filled: Mounted, machines: Machines, state: str) -> None:
    other = machines.volume("other")
    (other / "same").write_bytes(DATA)
    machines.run("flush", other)
    (segment,) = (filled.volume / "blocks" / "segments").glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(1 << 20)
        file.write(bytes(3000))
    if state == "mounted":
        filled.remount()
    damaged = filled.run("scrub", filled.volume, "--json", expect=15).lines[0]
    assert damaged["corrupt"]
    done = filled.run("scrub", filled.volume, "--from", machines.home / "volume-other", "--json").lines[0]
    assert done["fetched"] == damaged["corrupt"]
    assert filled.run("scrub", filled.volume, "--json").lines[0]["clean"] is True
    if state == "mounted":
        filled.umount()
    assert whole(filled)


def test_a_misspelt_source_is_told_also_when_nothing_is_damaged(filled: Mounted, machines: Machines) -> None:
    filled.run("scrub", filled.volume, "--from", machines.home / "nowhere", expect=10)


def test_a_block_directory_and_a_servers_folder_can_be_scrubbed(filled: Mounted) -> None:
    blocks = filled.volume / "blocks"
    folder = filled.machines.home / "server"
    folder.mkdir()
    shutil.copytree(blocks, folder / "blocks")
    for place in (blocks, folder):
        assert filled.run("scrub", place, "--json").lines[0]["blocks_checked"] == 81


def test_an_unreadable_tree_is_refused_with_what_to_do(filled: Mounted) -> None:
    data = filled.volume / "tree" / "data.mdb"
    for damage in (lambda: os.truncate(data, 5 * 4096), lambda: data.write_bytes(b"x" * 50_000)):
        damage()
        for options in ((), ("--repair",)):
            assert "recovery.md" in filled.run("fsck", filled.volume, *options, expect=15).stderr


def damaged_description(text: str) -> str:
    return text.replace("block_size", "size")


@pytest.mark.parametrize("damage", ["a line", "all of it", "the file"])
def test_repair_makes_a_damaged_description_anew(volume: Path, machines: Machines, damage: str) -> None:
    """Block size and compression are in blocks.toml as well; the identity is kept if it can still be read."""
    path = volume / "volume.toml"
    whole = path.read_text()
    if damage == "a line":
        path.write_text(damaged_description(whole))
    elif damage == "all of it":
        path.write_bytes(b"\0" * len(whole))
    else:
        path.unlink()
    for verb in (("fsck",), ("scrub",), ("gc",)):
        assert "blocksync fsck --repair" in machines.run(*verb, volume, expect=15).stderr
    told = json.loads(machines.run("fsck", "--repair", "--json", volume, expect=0).stdout)
    (finding,) = told["findings"]
    assert (finding["kind"], str(path) in finding["message"]) == ("description", True)
    if damage == "a line":
        assert path.read_text() == whole
    else:
        assert "link --relink" in finding["remedy"]
        assert without_uuid(path.read_text()) == without_uuid(whole)
    machines.run("fsck", volume)
    (machines.home / "m").mkdir()
    machines.run("mount", volume, machines.home / "m")
    machines.run("umount", machines.home / "m")


def without_uuid(text: str) -> str:
    return re.sub('uuid = "[^"]*"', "uuid", text)


def test_a_damaged_description_of_a_newer_volume_is_left_alone(volume: Path, machines: Machines) -> None:
    path = volume / "volume.toml"
    path.write_text(damaged_description(path.read_text()).replace("format = 2", f"format = {TOO_NEW}"))
    before = contents(volume)
    assert "volume.toml" in machines.run("fsck", "--repair", volume, expect=14).stderr
    assert contents(volume) == before


TOO_NEW = 43
VERBS = (
    ("fsck",),
    ("fsck", "--repair"),
    ("scrub",),
    ("gc",),
    ("snapshot", "create", None, "name"),
    ("snapshot", "list"),
    ("snapshot", "delete", None, "name"),
)


@pytest.mark.parametrize("name", ["volume.toml", "blocks/blocks.toml", "tree"])
def test_a_newer_format_is_refused_by_every_command_that_opens_a_volume(
    volume: Path, machines: Machines, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    known = make_newer(volume, name)
    before = contents(volume)
    (machines.home / "m").mkdir()
    messages = [machines.run("mount", volume, machines.home / "m", expect=14).stderr]
    for verb in VERBS:
        arguments = [str(word or volume) for word in (verb if None in verb else (*verb, None))]
        assert entry.run(arguments) == 14, arguments
        messages.append(capsys.readouterr().err)
    if name == "blocks/blocks.toml":
        assert entry.run(["scrub", str(volume / "blocks")]) == 14
        messages.append(capsys.readouterr().err)
    for message in messages:
        assert message.count("\n") == 1
        assert f"/{name}" in message
        assert re.findall(r"format (\d+) .*up to (\d+)", message) == [(str(TOO_NEW), str(known))]
    assert contents(volume) == before


def make_newer(volume: Path, name: str) -> int:
    """Raise a format number; returns the one that this version knows."""
    if name == "tree":
        path = os.fsencode(volume / "tree")
        environment = open_tree_environment(path)
        databases = open_tables(environment, path)
        with environment.begin(write=True) as transaction:
            transaction.put(META_FORMAT, encode_format(TOO_NEW), db=databases[Table.META])
        close_environment(environment)
        return FORMAT
    description = volume / name
    text = description.read_text()
    (written,) = re.findall(r"^format = (\d+)$", text, re.MULTILINE)
    description.write_text(text.replace(f"format = {written}", f"format = {TOO_NEW}"))
    return BLOCKS_FORMAT if name.startswith("blocks/") else int(written)


def contents(volume: Path) -> dict[Path, bytes]:
    """All files of a volume but those that each process writes to: nothing of them is a format's."""
    passing = {"lock", "lock.mdb", "mount.log", "ballast"}
    return {path: path.read_bytes() for path in volume.rglob("*") if path.is_file() and path.name not in passing}
