"""Ordinary folders against a real server, by the command line."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from syncer.cli.registry.roots import Registry
from tests.integration.syncing import BLOCK, BLOCKSYNC, Sync, content

NOISE = random.Random(1).randbytes(40 * BLOCK)


@pytest.fixture
def pair(sync: Sync) -> tuple[Path, Path]:
    return sync.folder("a"), sync.folder("b")


def test_a_tree_travels_and_comes_to_rest(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "image").write_bytes(NOISE + b"tail")
    (first / "d/e").mkdir(parents=True)
    (first / "d/ünïcode name").write_bytes(b"x")
    (first / "d/empty").write_bytes(b"")
    (first / "link").symlink_to("d/e")
    up = sync.reconcile(first)
    assert (up["pushed"], up["blocks_received"]) == (6, 0)
    assert up["blocks_sent"] == 42
    down = sync.reconcile(second)
    assert (down["pulled"], down["blocks_received"]) == (6, 43)  # the link's text is read like a block
    assert content(first) == content(second)
    sync.at_rest(first, second)


@pytest.mark.parametrize("year_s", [-12_219_292_800, 15_032_385_535])  # 1582; 2446, the last that ext4 can hold
def test_a_time_that_64_bits_can_not_hold_stops_nothing(sync: Sync, pair: tuple[Path, Path], year_s: int) -> None:
    """It was an internal error when the base was recorded, for all of the root and in every cycle."""
    first, second = pair
    (first / "file").write_bytes(b"content")
    (first / "other").write_bytes(b"other")
    os.utime(first / "file", (year_s, year_s))
    assert sync.reconcile(first)["pushed"] == 2
    sync.reconcile(second)
    assert content(first) == content(second)
    sync.at_rest(first, second)
    (second / "file").write_bytes(b"changed")
    sync.reconcile(second)
    sync.reconcile(first)
    assert (first / "file").read_bytes() == b"changed"
    sync.at_rest(first, second)


def test_change_rename_and_copy_cost_what_changed(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "image").write_bytes(NOISE)
    sync.reconcile(first)
    sync.reconcile(second)
    with (first / "image").open("r+b") as file:
        file.seek(5 * BLOCK)
        file.write(b"changed")
    assert sync.reconcile(first)["blocks_sent"] == 1
    assert sync.reconcile(second)["blocks_received"] == 1
    (first / "d").mkdir()
    (first / "image").rename(first / "d/renamed")
    shutil.copyfile(first / "d/renamed", first / "copy")
    for root in pair:
        summary = sync.reconcile(root)
        assert (summary["moved"], summary["blocks_sent"], summary["blocks_received"]) == (1, 0, 0)
        assert summary["blocks_from_own"] == (len(NOISE) // BLOCK if root == second else 0)
    sync.reconcile(second)  # an empty one
    (status,) = sync("status", second, "--json")
    assert status["last_shared"]["blocks_from_own"] == len(NOISE) // BLOCK
    assert content(first) == content(second)
    sync.at_rest(first, second)


@pytest.mark.parametrize("size", [1000, 10 * BLOCK + 17])
def test_files_that_swap_their_contents_receive_nothing(sync: Sync, pair: tuple[Path, Path], size: int) -> None:
    """Whichever is replaced first is in the trash when the other one wants its blocks."""
    first, second = pair
    names = [f"f{number}" for number in range(6)]
    for name in names:
        (first / name).write_bytes(random.Random(name).randbytes(size))
    sync.reconcile(first)
    sync.reconcile(second)
    for _ in range(3):
        for one, other in zip(names[::2], names[1::2], strict=True):
            (first / one).rename(first / "t")
            (first / other).rename(first / one)
            (first / "t").rename(first / other)
        assert sync.reconcile(first)["blocks_sent"] == (6 if size < BLOCK else 0)  # small ones travel with their names
        assert sync.reconcile(second)["blocks_received"] == 0
        assert content(first) == content(second)
    sync.at_rest(first, second)


def test_a_renamed_folder_is_one_local_rename(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    for number in range(30):
        (first / f"d/{number % 3}").mkdir(parents=True, exist_ok=True)
        (first / f"d/{number % 3}/{number}").write_bytes(b"%d" % number)
    sync.reconcile(first)
    sync.reconcile(second)
    inode = os.stat(second / "d/1/1").st_ino
    (first / "d").rename(first / "e")
    for root in pair:
        summary = sync.reconcile(root)
        assert (summary["moved"], summary["pushed"], summary["pulled"], summary["deleted"]) == (1, 0, 0, 0)
    assert content(first) == content(second)
    assert os.stat(second / "e/1/1").st_ino == inode
    sync.at_rest(first, second)


def test_both_sides_edit_and_both_contents_stay(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "image.img").write_bytes(NOISE)
    sync.reconcile(first)
    sync.reconcile(second)
    (first / "image.img").write_bytes(NOISE + b"first")
    (second / "image.img").write_bytes(NOISE + b"second")
    sync.reconcile(first)
    conflict = sync.reconcile(second, expect=4)
    assert (conflict["conflicts"], conflict["blocks_sent"], conflict["blocks_received"]) == (1, 1, 1)
    sync.reconcile(first)
    assert content(first) == content(second)
    assert sorted(content(first).values(), key=str) == sorted([NOISE + b"first", NOISE + b"second"], key=str)
    (status,) = sync("status", second, "--json")
    assert status["conflicts"] == [name for name in content(first) if "conflict" in name]
    sync.at_rest(first, second)


def test_the_guard_names_the_command_that_agrees(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, _second = pair
    for number in range(12):
        (first / f"f{number}").write_bytes(b"%d" % number)
    sync.reconcile(first)
    for number in range(12):
        (first / f"f{number}").unlink()
    sync.reconcile(first, expect=16)
    plan = sync.err.split("--allow-deletes")[1].split()[0]
    assert str(first) in sync.err
    assert sync.reconcile(first, "--allow-deletes", plan)["deleted"] == 12


def test_unlink_forgets_and_linking_again_merges(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    (first / "kept").write_bytes(b"kept")
    sync.reconcile(first)
    sync("unlink", first)
    sync("reconcile", first, expect=10)
    assert not (first / ".blocksync/root").exists()
    (first / "kept").unlink()
    (first / "new").write_bytes(b"new")
    sync("link", first, sync.url, "--token-file", sync.token_file)
    merged = sync.reconcile(first)
    assert (merged["deleted"], merged["pushed"], merged["pulled"]) == (0, 1, 1)
    sync.reconcile(second)
    assert content(first) == content(second) == {"kept": b"kept", "new": b"new"}


def test_unlink_after_a_cycle_that_was_cut_short_hides_nothing(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, _ = pair
    (first / "file").write_bytes(b"x")
    sync.reconcile(first)
    (first / ".blocksync/park/2-folder").mkdir()
    (first / ".blocksync/park/2-folder/mine").write_bytes(b"mine")
    unseen = first / ".blocksync/trash/1-00000001.replaced-1.1.1.1.0"
    unseen.mkdir()
    (unseen / "item").write_bytes(b"written at the last moment")
    (unseen / "origin").symlink_to("back")
    old = first / ".blocksync/trash/1-00000002.deleted"
    old.mkdir()
    sync("unlink", first)
    assert str(first / ".blocksync/park/2-folder") in sync.err
    assert "back: " in sync.err
    assert (first / "back").read_bytes() == b"written at the last moment"
    assert old.exists()  # what is in the trash stays
    sync("link", first, sync.url, sync.opens, sync.token_file)
    sync.reconcile(first)
    assert (first / "folder/mine").read_bytes() == b"mine"


def test_link_refuses_what_would_mix_shares(sync: Sync, pair: tuple[Path, Path], tmp_path: Path) -> None:
    first, _second = pair
    token = ("--token-file", sync.token_file)
    sync("link", first, sync.url, *token)  # again: fine
    assert "its token is renewed" in sync.err
    sync("link", first, sync.url + "-other", *token, expect=2)
    assert "--relink" in sync.err
    (first / "below").mkdir()
    sync("link", first / "below", sync.url, *token, expect=2)
    sync("link", tmp_path, sync.url, *token, expect=2)
    sync("link", tmp_path / "nothing", sync.url, *token, expect=10)
    sync("link", first, "http://example.org/x", *token, expect=2)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    sync("link", fresh, sync.url, expect=2)
    assert "BLOCKSYNC_TOKEN" in sync.err
    wrong = tmp_path / "wrong"
    wrong.write_text("nonsense default\n")
    sync("link", fresh, sync.url, "--token-file", wrong, expect=12)
    sync("link", fresh, sync.url + "-none", *token, "--no-create", expect=10)
    moved = first.with_name("moved")
    first.rename(moved)
    sync("link", moved, sync.url, *token, expect=2)
    assert str(first) in sync.err
    moved.rename(first)


def test_relink_to_another_container_moves_nothing_away(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, _second = pair
    (first / "file").write_bytes(NOISE)
    sync.reconcile(first)
    sync.container += "-2"
    sync("link", first, sync.url, "--token-file", sync.token_file, "--relink")
    summary = sync.reconcile(first)
    assert (summary["pushed"], summary["deleted"]) == (1, 0)
    assert summary["blocks_sent"] <= 40


def test_the_token_is_kept_private_and_read_from_the_environment(
    sync: Sync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setenv("BLOCKSYNC_TOKEN", sync.token_file.read_text().split()[0])
    sync("link", root, sync.url)
    monkeypatch.delenv("BLOCKSYNC_TOKEN")
    (token,) = (tmp_path / "state").glob("blocksync/roots/*/token")
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "data").glob("blocksync/*/blocks/blocks.toml"))
    sync.reconcile(root)


def test_a_missing_or_replaced_root_is_an_identity_error_and_status_says_away(
    sync: Sync, pair: tuple[Path, Path]
) -> None:
    first, _second = pair
    (first / "file").write_bytes(b"x")
    sync.reconcile(first)
    away = first.with_name("away")
    first.rename(away)
    sync("reconcile", first, expect=18)
    first.mkdir()
    sync("reconcile", first, expect=18)
    (first / ".blocksync/root").mkdir(parents=True)  # a marker that can't be read
    sync("reconcile", first, expect=18)
    shutil.rmtree(first / ".blocksync")
    (status,) = sync("status", first, "--json")
    assert status["condition"] == "away"
    first.rmdir()
    away.rename(first)
    sync.at_rest(first)


def test_without_a_root_all_are_done_and_one_failure_does_not_stop_the_others(
    sync: Sync, pair: tuple[Path, Path]
) -> None:
    first, second = pair
    (second / "file").write_bytes(b"x")
    first.rename(first.with_name("away"))
    lines = sync("reconcile", "--json", expect=18)
    summaries = {line["root"]: line for line in lines if line["type"] == "summary"}
    assert summaries[str(second)]["pushed"] == 1
    assert [line["exit_code"] for line in lines if line["type"] == "error"] == [18]
    assert len(summaries) == 2
    assert {line["root"]: line["condition"] for line in sync("status", "--json")} == {
        str(first): "away",
        str(second): "ok",
    }


def test_a_second_process_on_one_root_is_refused(sync: Sync, pair: tuple[Path, Path]) -> None:
    """The first one waits for a server that never answers: no lock but the root's is held then."""
    first, _second = pair
    (first / "file").write_bytes(NOISE)
    registry = Registry(os.environ)
    linked = registry.get(os.fsencode(first))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"pithos+http://127.0.0.1:{silent.getsockname()[1]}/v1/a/c"
        registry.write(replace(linked.record, url=url), linked.secret())
        running = subprocess.Popen(
            [BLOCKSYNC, "reconcile", first], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            asked, _ = silent.accept()
            sync("reconcile", first, expect=11)
            assert str(running.pid) in sync.err
            (status,) = sync("status", first, "--json")
            assert status["condition"] == "running"
            sync("unlink", first, expect=11)
        finally:
            running.kill()
            running.wait()
        asked.close()
    registry.write(linked.record, linked.secret())
    assert sync.reconcile(first)["pushed"] == 1
    sync.at_rest(first)


def test_problems_are_reported_as_json_and_kept_for_status(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, _second = pair
    with open(os.fsencode(first) + b"/caf\xe9", "wb") as file:
        file.write(b"x")
    os.mkfifo(first / "pipe")
    (first / "good").write_bytes(b"y")
    lines = sync("reconcile", first, "--json", expect=3)
    assert [(line["type"], line.get("path")) for line in lines] == [
        ("failure", "caf\\xe9"),
        ("note", "pipe"),
        ("action", "good"),
        ("summary", None),
    ]
    (status,) = sync("status", first, "--json")
    assert status["condition"] == "degraded"
    assert {pending["path"] for pending in status["pending"]} == {"caf\\xe9", "pipe"}
    sync("status", first)
    assert "degraded" in sync.out


def test_a_dry_run_prints_the_plan_and_does_nothing(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, _second = pair
    (first / "new").write_bytes(b"x")
    summary = sync.reconcile(first, "--dry-run")
    assert (summary["pushed"], summary["dry_run"], summary["mutating_requests"]) == (1, True, 0)
    assert sync.reconcile(first)["pushed"] == 1


def test_sigkill_at_random_points_of_a_push_and_a_pull_loses_nothing(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, second = pair
    noise = random.Random(5)
    for number in range(30):
        (first / f"d{number % 3}").mkdir(exist_ok=True)
        (first / f"d{number % 3}/image-{number}").write_bytes(noise.randbytes(noise.randrange(40 * BLOCK)))
    expected = content(first)
    for root in pair:
        for _ in range(4):
            running = subprocess.Popen(
                [BLOCKSYNC, "reconcile", root], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                running.wait(0.3 + 0.5 * noise.random())
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
        sync.reconcile(root)
    assert content(first) == content(second) == expected
    sync.at_rest(first, second)


def test_limits_are_kept_with_the_root_and_progress_is_told(sync: Sync, pair: tuple[Path, Path]) -> None:
    first, _ = pair
    (first / "file").write_bytes(os.urandom(300_000))
    sync("link", first, sync.url, "--token-file", sync.token_file, "--limit-up", "200kB", "--limit-down", "1GiB")
    lines = sync("reconcile", first, "--json")
    (summary,) = [line for line in lines if line["type"] == "summary"]
    assert summary["bytes_sent"] >= 300_000
    told = [line for line in lines if line["type"] == "progress"]
    assert all(line["files"] == 1 and line["bytes"] == 300_000 for line in told)
    sync("reconcile", first, "--limit-up", "0")
    sync("reconcile", first, "--limit-up", "many", expect=2)
