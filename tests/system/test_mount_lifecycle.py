"""Starting and ending mounts: readiness, refusals, signals, dead mounts."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from blockfs.mount.connection_limits import (
    CONGESTION_THRESHOLD,
    LOWERED_DIRTY_BYTES,
    MAX_BACKGROUND,
    READ_AHEAD_KIB,
    ConnectionLimits,
)
from blockfs.runtime.linux import detached_mount
from blockfs.runtime.mountinfo import read_mounts
from tests.conftest import Mounted, mounted_below
from tests.system.machines import BLOCKSYNC, Machines, is_mounted, signal_and_wait


def test_a_mount_shows_its_type_and_volume(mounted: Mounted) -> None:
    (mount,) = [mount for mount in read_mounts() if mount.mountpoint == os.fsencode(mounted.path)]
    assert mount.filesystem_type == "fuse.blocksync"
    assert mount.source == os.fsencode(mounted.volume)


def test_the_kernel_keeps_the_queue_of_background_requests_short(mounted: Mounted) -> None:
    (mount,) = [mount for mount in read_mounts() if mount.mountpoint == os.fsencode(mounted.path)]
    control = detached_mount(b"fusectl")
    try:
        limits = {}
        for name in ("max_background", "congestion_threshold"):
            with open(os.open(f"{mount.device_minor}/{name}", os.O_RDONLY, dir_fd=control), "rb") as file:
                limits[name] = int(file.read())
    finally:
        os.close(control)
    assert limits == {"max_background": MAX_BACKGROUND, "congestion_threshold": CONGESTION_THRESHOLD}


def test_the_kernel_asks_for_much_at_once_of_a_file_that_is_read_in_order(
    mounted: Mounted, frontend: str | None
) -> None:
    """With pyfuse3 the kernel's first request, which sets it back, is answered later."""
    (mount,) = [mount for mount in read_mounts() if mount.mountpoint == os.fsencode(mounted.path)]
    assert int(Path(f"/sys/class/bdi/0:{mount.device_minor}/read_ahead_kb").read_bytes()) == (
        128 if frontend == "pyfuse3" else READ_AHEAD_KIB
    )


def test_a_stream_may_have_little_dirty_while_another_file_is_fsynced(fuse: None, tmp_path: Path) -> None:
    """Of pages that come to us: on a native mount they are the host's."""
    for mounted in mounted_below(tmp_path, "--no-native"):
        check_limit_of_dirty(mounted)


def check_limit_of_dirty(mounted: Mounted) -> None:
    (mount,) = [mount for mount in read_mounts() if mount.mountpoint == os.fsencode(mounted.path)]
    limit = Path(f"/sys/class/bdi/0:{mount.device_minor}/max_bytes")
    usual_bytes = int(limit.read_bytes())
    stream = os.open(mounted.path / "stream", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    page = os.open(mounted.path / "page", os.O_WRONLY | os.O_CREAT)
    large = mmap.mmap(-1, 1 << 20)
    try:
        assert usual_bytes > LOWERED_DIRTY_BYTES
        while int(limit.read_bytes()) > LOWERED_DIRTY_BYTES:
            os.pwrite(stream, large, 0)
            os.pwrite(page, b"x", 0)
            os.fsync(page)
        while int(limit.read_bytes()) <= LOWERED_DIRTY_BYTES:  # until the last fsync is a second ago
            os.fsync(stream)
    finally:
        os.close(page)
        os.close(stream)


@pytest.mark.parametrize(
    "name",
    [
        b"with space",
        b"comma,comma",
        b"back\\slash",
        b"tab\tnewline\n",
        b"caf\xe9 not utf-8",
        "größe".encode(),
        b"d" * 200,
    ],
    ids=["space", "comma", "backslash", "control", "not-utf-8", "utf-8", "long"],
)
def test_any_path_can_be_a_volume_and_a_mountpoint(machines: Machines, name: bytes) -> None:
    home = os.fsencode(machines.home)
    volume, mountpoint = os.path.join(home, name, b"v"), os.path.join(home, b"m " + name)
    os.makedirs(os.path.dirname(volume))
    os.mkdir(mountpoint)
    machines.run("init", volume)
    machines.run("mount", volume, mountpoint)
    try:
        (mount,) = [mount for mount in read_mounts() if mount.mountpoint == mountpoint]
        assert (mount.source, mount.filesystem_type) == (volume, "fuse.blocksync")
        with open(os.path.join(mountpoint, b"file"), "wb") as file:
            file.write(b"x")
        machines.run("flush", mountpoint)
        assert json.loads(machines.run("stats", mountpoint, "--json").stdout)["files"] == 1
    finally:
        machines.run("umount", mountpoint)


def test_umount_returns_when_the_process_is_gone_and_all_is_there_again(mounted: Mounted) -> None:
    pid = mounted.pid
    (mounted.path / "file").write_bytes(b"kept")
    mounted.umount()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()
    assert not is_mounted(mounted.path)
    assert not (mounted.volume / "control.sock").exists()
    mounted.remount()
    assert (mounted.path / "file").read_bytes() == b"kept"


def test_a_second_mount_of_a_volume_is_refused_with_the_place_and_the_holders_pid(mounted: Mounted) -> None:
    other = mounted.machines.home / "other"
    other.mkdir()
    for mountpoint in (other, mounted.path):
        refused = mounted.run("mount", mounted.volume, mountpoint, expect=11)
        assert f"is mounted at {mounted.path}, by process {mounted.pid}" in refused.stderr
    assert not is_mounted(other)
    (mounted.path / "still").write_bytes(b"works")


def test_a_busy_mount_is_not_unmounted_and_goes_on(mounted: Mounted) -> None:
    with (mounted.path / "open").open("wb") as file:
        refused = mounted.run("umount", mounted.path, expect=11)
        assert "busy" in refused.stderr
        file.write(b"written after the refusal")
    assert (mounted.path / "open").read_bytes() == b"written after the refusal"
    mounted.run("stats", mounted.path)
    mounted.umount()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unmounts_and_commits_everything(mounted: Mounted, number: int) -> None:
    (mounted.path / "file").write_bytes(b"kept" * 10_000)
    signal_and_wait(mounted.pid, number)
    assert not is_mounted(mounted.path)
    mounted.remount()
    assert (mounted.path / "file").read_bytes() == b"kept" * 10_000


def test_a_signal_ends_a_busy_mount_without_losing_what_was_written(mounted: Mounted) -> None:
    descriptor = os.open(mounted.path / "open", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"in the kernel's cache" * 1000)
    signal_and_wait(mounted.pid, signal.SIGTERM)
    assert not is_mounted(mounted.path)
    with pytest.raises(OSError, match="not connected"):
        os.ftruncate(descriptor, 0)
    with contextlib.suppress(OSError):  # nothing is left to be written, but perhaps the times
        os.close(descriptor)
    mounted.remount()
    assert (mounted.path / "open").read_bytes() == b"in the kernel's cache" * 1000


def test_a_foreground_mount_logs_to_stderr_and_ends_with_ctrl_c(machines: Machines, volume: Path) -> None:
    mountpoint = machines.home / "m"
    mountpoint.mkdir()
    process = subprocess.Popen(
        [BLOCKSYNC, "mount", volume, mountpoint, "--foreground"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    events = iter(process.stderr)
    ready = json.loads(next(events))
    assert ready["event"] == "mount.ready"
    (mountpoint / "file").write_bytes(b"x")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    assert [json.loads(line)["level"] for line in events] == ["info"] * 2
    process.stderr.close()
    assert not is_mounted(mountpoint)


def test_a_mount_that_the_kernel_ended_cleans_up_too(mounted: Mounted) -> None:
    (mounted.path / "file").write_bytes(b"kept")
    descriptor = os.pidfd_open(mounted.pid)
    subprocess.run(["umount", mounted.path], check=True)
    ready, _, _ = select.select([descriptor], [], [], 120)
    os.close(descriptor)
    assert ready
    mounted.remount()
    assert (mounted.path / "file").read_bytes() == b"kept"


def test_mounting_over_a_dead_mount_detaches_it_first(mounted: Mounted) -> None:
    (mounted.path / "file").write_bytes(b"kept")
    mounted.run("flush", mounted.path)
    mounted.kill()
    with pytest.raises(OSError, match="not connected"):
        os.listdir(mounted.path)
    mounted.remount()
    assert (mounted.path / "file").read_bytes() == b"kept"
    assert len([mount for mount in read_mounts() if mount.mountpoint == os.fsencode(mounted.path)]) == 1


def test_a_dead_mount_can_be_unmounted(mounted: Mounted) -> None:
    mounted.kill()
    assert "gone already" in mounted.run("umount", mounted.path).stderr
    assert not is_mounted(mounted.path)


def test_unusable_places_are_refused_with_advice(machines: Machines, volume: Path) -> None:
    home = machines.home
    full, empty, file = home / "full", home / "empty", home / "file"
    for folder in (full, empty):
        folder.mkdir()
    (full / "something").touch()
    file.touch()
    for mountpoint, code, words in (
        (full, 2, "not empty"),
        (home / "missing", 10, "does not exist"),
        (file, 2, "not a directory"),
        (volume, 2, "inside each other"),
        (home, 2, "inside each other"),
    ):
        assert words in machines.run("mount", volume, mountpoint, expect=code).stderr
    assert "init" in machines.run("mount", home / "no-volume", empty, expect=10).stderr
    assert "not the mountpoint" in machines.run("umount", empty, expect=10).stderr
    machines.run("fsck", volume)  # none of this left the volume locked


def test_another_volumes_mountpoint_is_refused(mounted: Mounted) -> None:
    other = mounted.machines.home / "other-volume"
    mounted.run("init", other)
    assert "is mounted at" in mounted.run("mount", other, mounted.path, expect=2).stderr


def test_the_mount_process_keeps_no_folder_busy(machines: Machines, volume: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    subprocess.run([BLOCKSYNC, "mount", "volume", "m"], cwd=tmp_path, check=True)  # relative paths
    try:
        pid = int((volume / "lock").read_text())
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert {os.readlink(f"/proc/{pid}/fd/{number}") for number in (1, 2)} == {str(volume / "mount.log")}
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    finally:
        machines.run("umount", tmp_path / "m")


def test_a_mount_that_has_ended_does_not_cut_the_next_one(mounted: Mounted) -> None:
    """The kernel gives the next mount, whoever's, the number of the connection that has ended."""
    limits = ConnectionLimits(os.fsencode(mounted.path))
    mounted.umount()
    mounted.remount()
    limits.cut()
    assert os.listdir(mounted.path) == []
    limits.close()
    ConnectionLimits(os.fsencode(mounted.path)).cut()
    with pytest.raises(OSError, match="Transport endpoint"):
        os.listdir(mounted.path)
    mounted.umount()


def test_umount_of_a_mount_that_somebody_cut_off_waits_for_its_process(mounted: Mounted) -> None:
    with open(mounted.path / "f", "wb") as file:
        file.write(b"kept")
        os.fsync(file)
    pid = int((mounted.volume / "lock").read_text())
    process = os.pidfd_open(pid)
    limits = ConnectionLimits(os.fsencode(mounted.path))
    os.kill(pid, signal.SIGSTOP)  # so that it has not ended yet when umount asks
    limits.cut()
    limits.close()
    umount = subprocess.Popen(
        [BLOCKSYNC, "umount", mounted.path, "--json"], env=mounted.machines.environment, stdout=subprocess.PIPE
    )
    while "poll" not in Path(f"/proc/{umount.pid}/wchan").read_text():
        assert umount.poll() is None  # it has not asked yet
    signal.pidfd_send_signal(process, signal.SIGCONT)
    out, _ = umount.communicate()
    assert umount.returncode == 0
    state = json.loads(out)["state"]
    assert state in {"ended", "detached"}  # its socket may be closed before umount is answered, and all committed after
    assert select.select([process], [], [], 0 if state == "ended" else None)[0]
    os.close(process)
    mounted.remount()
    assert (mounted.path / "f").read_bytes() == b"kept"
