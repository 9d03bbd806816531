"""clone, flush, stats, gc, fsck and scrub, mounted and not."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Mounted
from tests.system.machines import Machines

MIB = 1 << 20
STATS_KEYS = {
    *("type", "version", "files", "logical_bytes", "unique_bytes", "stored_bytes"),
    *("blocks", "staged_bytes", "dedup_ratio", "program_version", "read_only", "uptime_seconds", "open_files"),
    *("requests", "request_seconds", "errors", "commits", "sealed_files"),
    *("gc_runs", "gc_removed_blocks", "gc_freed_bytes", "frontend", "mode", "mode_reason"),
}


def stats(mounted: Mounted, path: Path | None = None) -> dict[str, Any]:
    lines = mounted.run("stats", path or mounted.path, "--json").stdout.splitlines()
    assert len(lines) == 1
    found: dict[str, Any] = json.loads(lines[0])
    assert set(found) == STATS_KEYS
    return found


def test_a_path_that_does_not_exist_is_not_taken_for_its_mount(mounted: Mounted) -> None:
    for verb in ("flush", "stats", "gc"):
        mounted.run(verb, mounted.path / "none", expect=10)


def test_stats_add_up(mounted: Mounted) -> None:
    noise = random.Random(1)
    data = noise.randbytes(MIB)
    (mounted.path / "one").write_bytes(data)
    (mounted.path / "same").write_bytes(data)
    os.link(mounted.path / "one", mounted.path / "hard-link")
    (mounted.path / "holes").write_bytes(bytes(3 * MIB))
    (mounted.path / "small").write_bytes(b"x" * 100 + bytes(50))
    (mounted.path / "folder").mkdir()
    assert stats(mounted)["staged_bytes"] >= 0
    mounted.run("flush", mounted.path)
    found = stats(mounted, mounted.path / "folder")
    assert (found["type"], found["version"], found["files"]) == ("stats", 1, 4)
    assert found["logical_bytes"] == 5 * MIB + 150
    assert found["unique_bytes"] == MIB + 100
    assert found["blocks"] == 17
    assert found["staged_bytes"] == 0
    assert found["dedup_ratio"] == pytest.approx((2 * MIB + 150) / (MIB + 100))
    du = subprocess.run(["du", "-sB1", "--exclude=staging", mounted.volume], capture_output=True, text=True, check=True)
    assert abs(found["stored_bytes"] - int(du.stdout.split()[0])) <= MIB // 4
    text = mounted.run("stats", mounted.volume).stdout
    assert "5 MiB" in text
    assert "dedup ratio" in text
    frontend, mode, reason = found["frontend"], found["mode"], re.escape(found["mode_reason"])
    assert re.search(rf"front-end +{frontend} *\nmode +{mode} *\n{mode}: {reason}\n$", text)


def test_stats_of_files_that_come_to_more_than_a_message_holds_tell_the_most_that_it_holds(mounted: Mounted) -> None:
    for name in ("one", "two", "three"):
        (mounted.path / name).touch()
        os.truncate(mounted.path / name, 2**63 - 1)
    mounted.run("flush", mounted.path)
    assert stats(mounted)["logical_bytes"] == 2**64 - 1
    assert mounted.run("stats", "--map", "--json", mounted.path)


def test_a_mount_counts_what_it_does(mounted: Mounted) -> None:
    with (mounted.path / "file").open("wb") as file:
        file.write(b"x" * 100_000)
        os.fsync(file.fileno())
        found = stats(mounted)
        assert found["open_files"] == 1
    mounted.run("flush", mounted.path)
    mounted.run("gc", mounted.path)
    found = stats(mounted)
    assert found["requests"]["fsync"] == 1
    assert found["request_seconds"]["fsync"] > 0
    assert min(found["commits"], found["sealed_files"], found["gc_runs"], found["uptime_seconds"]) > 0
    assert not found["read_only"]
    text = mounted.run("stats", mounted.path, "--metrics").stdout
    metrics = {
        (sample.name, sample.labels.get("kind")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert metrics["blocksync_request_seconds_count", "fsync"] == 1
    assert metrics["blocksync_logical_bytes", None] == 100_000
    mounted.run("stats", mounted.path, "--metrics", "--json", expect=2)


def test_stats_of_what_is_no_mount_says_so(mounted: Mounted) -> None:
    assert "neither" in mounted.run("stats", mounted.machines.home, expect=10).stderr
    assert "does not exist" in mounted.run("stats", "/nowhere/at/all", expect=10).stderr
    mounted.umount()
    assert "not mounted" in mounted.run("stats", mounted.volume, expect=10).stderr


def test_verbs_that_change_something_say_what_they_did_in_json(machines: Machines, fuse: None) -> None:
    volume, path = machines.home / "v", machines.home / "m"
    path.mkdir()

    def done(*arguments: str | Path) -> dict[str, object]:
        (line,) = machines.run(*arguments, "--json").lines
        assert line.pop("version") == 1
        return line

    made = done("init", volume)
    assert (made["type"], made["volume"], made["block_size"], made["compression"]) == (
        "init", str(volume), 65536, "none",
    )  # fmt: skip
    mounted = done("mount", volume, path)
    assert mounted == {
        "type": "mount", "volume": str(volume), "mountpoint": str(path), "read_only": False, "pid": mounted["pid"],
    }  # fmt: skip
    assert f"blocksync\0mount\0{volume}" in Path(f"/proc/{mounted['pid']}/cmdline").read_text()
    (path / "f").write_bytes(b"content")
    copy = {"type": "clone", "source": str(path / "f"), "path": str(path / "g"), "size_bytes": 7}
    assert done("clone", path / "f", path / "g") == copy
    flushed = done("flush", path)
    assert (flushed["type"], flushed["mountpoint"], set(flushed["cursor"])) == (  # type: ignore[call-overload] # a map
        "flush", str(path), {"generation", "sequence"},
    )  # fmt: skip
    assert done("snapshot", "create", path, "s")["type"] == "snapshot"
    restored = {"type": "restored", "name": "s", "path": str(path / "back")}
    assert done("snapshot", "restore", path, "s", path / "back") == restored
    assert done("snapshot", "delete", path, "s") == {"type": "deleted", "volume": str(volume), "name": "s"}
    assert done("umount", path) == {
        "type": "umount", "volume": str(volume), "mountpoint": str(path), "state": "unmounted", "holders": [],
    }  # fmt: skip


def test_snapshot_with_one_word_says_what_is_expected(mounted: Mounted) -> None:
    told = mounted.run("snapshot", "nightly", expect=2).stderr
    assert "expected `snapshot SRC NAME`" in told
    assert "create, list, delete, restore" in told


def test_a_clone_is_instant_complete_and_independent(mounted: Mounted) -> None:
    data = random.Random(2).randbytes(4 * MIB)
    source, copy = mounted.path / "source", mounted.path / "folder" / "copy"
    copy.parent.mkdir()
    assert not copy.exists()  # the kernel remembers that there is none
    source.write_bytes(data)  # dirty pages in the kernel belong to the source
    mounted.run("clone", source, copy)
    assert copy.read_bytes() == data
    before = stats(mounted)
    with copy.open("r+b") as file:
        file.seek(100_000)
        file.write(b"changed")
    mounted.run("flush", mounted.path)
    assert source.read_bytes() == data
    assert copy.read_bytes() == data[:100_000] + b"changed" + data[100_007:]
    assert stats(mounted)["blocks"] == before["blocks"] + 1
    mounted.umount()
    mounted.remount()
    assert copy.read_bytes()[100_000:100_007] == b"changed"


def test_a_clone_that_can_not_be_is_refused(mounted: Mounted) -> None:
    home = mounted.machines.home
    source = mounted.path / "source"
    source.write_bytes(b"x")
    (home / "outside").write_bytes(b"x")
    (mounted.path / "folder").mkdir()
    for src, dst, code, words in (
        (source, source, 2, "exists"),
        (source, mounted.path / "folder", 2, "exists"),
        (mounted.path / "missing", mounted.path / "copy", 10, "does not exist"),
        (source, mounted.path / "no" / "copy", 10, "does not exist"),
        (mounted.path / "folder", mounted.path / "copy", 2, "not a regular file"),
        (home / "outside", mounted.path / "copy", 2, "not on a blocksync mount"),
        (source, home / "copy", 2, "not on a blocksync mount"),
    ):
        assert words in mounted.run("clone", src, dst, expect=code).stderr
    assert sorted(os.listdir(mounted.path)) == ["folder", "source"]


def test_a_clone_through_a_bind_mount_finds_its_place(mounted: Mounted) -> None:
    folder, bound = mounted.path / "folder", mounted.machines.home / "bound"
    folder.mkdir()
    bound.mkdir()
    (folder / "source").write_bytes(b"content")
    subprocess.run(["mount", "--bind", folder, bound], check=True)
    try:
        mounted.run("clone", bound / "source", bound / "copy")
        assert (folder / "copy").read_bytes() == b"content"
    finally:
        subprocess.run(["umount", bound], check=True)


def test_clones_and_restored_files_go_where_they_were_asked_for_also_from_one_bind_mount_to_another(
    mounted: Mounted,
) -> None:
    """They went below the other mountpoint: to a folder of the bind mount's name, if there was one."""
    folder, bound = mounted.path / "folder", mounted.machines.home / "bound"
    for made in (folder, bound, mounted.path / "bound"):
        made.mkdir()
    (mounted.path / "source").write_bytes(b"content")
    mounted.run("snapshot", mounted.path, "s")
    subprocess.run(["mount", "--bind", folder, bound], check=True)
    try:
        mounted.run("clone", mounted.path / "source", bound / "copy")
        mounted.run("clone", bound / "copy", mounted.path / "back")
        mounted.run("snapshot", "restore", mounted.path, "s", bound / "restored", "--path", "source")
        mounted.run("snapshot", "restore", bound, "s", mounted.path / "restored", "--path", "source")
    finally:
        subprocess.run(["umount", bound], check=True)
    made = [folder / "copy", mounted.path / "back", folder / "restored", mounted.path / "restored"]
    assert [file.read_bytes() for file in made] == [b"content"] * 4
    assert os.listdir(mounted.path / "bound") == []


def test_clone_takes_the_latest_writes_of_an_open_file(mounted: Mounted) -> None:
    with (mounted.path / "image").open("wb", buffering=0) as file:
        for number in range(5):
            file.write(bytes([number + 1]) * 100_000)
            mounted.run("clone", mounted.path / "image", mounted.path / f"clone-{number}")
    for number in range(5):
        expected = b"".join(bytes([step + 1]) * 100_000 for step in range(number + 1))
        assert (mounted.path / f"clone-{number}").read_bytes() == expected


def test_gc_gives_back_what_nothing_refers_to(mounted: Mounted) -> None:
    noise = random.Random(3)
    kept = noise.randbytes(MIB)
    (mounted.path / "kept").write_bytes(kept)
    (mounted.path / "dropped").write_bytes(noise.randbytes(8 * MIB))
    mounted.run("flush", mounted.path)
    (mounted.path / "dropped").unlink()
    before = stats(mounted)["stored_bytes"]
    done = json.loads(mounted.run("gc", mounted.path, "--json").stdout)
    assert done["type"] == "gc"
    assert done["blocks_removed"] == 128
    assert done["bytes_freed"] >= 7 * MIB
    assert stats(mounted)["stored_bytes"] <= before - 7 * MIB
    assert (mounted.path / "kept").read_bytes() == kept
    (mounted.path / "kept").unlink()
    mounted.umount()
    assert json.loads(mounted.run("gc", mounted.volume, "--json").stdout)["blocks_removed"] == 16
    mounted.run("fsck", mounted.volume)


def test_fsck_and_scrub_of_a_sound_volume_are_clean(mounted: Mounted) -> None:
    (mounted.path / "file").write_bytes(random.Random(4).randbytes(MIB))
    mounted.run("flush", mounted.path)
    for target in (mounted.path, mounted.volume):
        checked = json.loads(mounted.run("fsck", target, "--json").stdout)
        assert (checked["type"], checked["clean"], checked["inodes_checked"]) == ("fsck", True, 3)
        scrubbed = json.loads(mounted.run("scrub", target, "--json").stdout)
        assert (scrubbed["type"], scrubbed["clean"], scrubbed["blocks_checked"]) == ("scrub", True, 16)
    refused = mounted.run("fsck", mounted.volume, "--repair", expect=11)
    assert str(mounted.pid) in refused.stderr
    mounted.umount()
    for verb in ("fsck", "scrub"):
        assert json.loads(mounted.run(verb, mounted.volume, "--json").stdout)["clean"] is True


def test_init_refuses_what_it_can_not_make(machines: Machines) -> None:
    home = machines.home
    machines.run("init", home / "small", "--block-size", "4KiB")
    for arguments, words in (
        ([home / "small"], "not empty"),
        ([home / "x", "--block-size", "5000"], "power of two"),
        ([home / "x", "--block-size", "lots"], "size"),
        ([home / "x", "--block-size", "8MiB"], "power of two"),
        ([home / "x", "--compression", "lz4"], "compression"),
        ([home / "no" / "parent"], "parent"),
    ):
        assert words in machines.run("init", *arguments, expect=2).stderr
    assert sorted(path.name for path in home.iterdir()) == ["small"]
