"""One guest through hard ends: boot, write, kill qemu or the mount, boot again; the disk is checked after each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Mounted
from tests.real.guest import Guest, Mode, Promises, check_filesystem, make_disk, make_initramfs, run

FOREVER = 1_000_000
LEAKS = 3  # qemu-img check: clusters are lost, data are not; what a killed qemu may leave


class Trial:
    """A guest's disk on a mount, and what the guest promised of it."""

    def __init__(self, mounted: Mounted, scratch: Path, mode: Mode) -> None:
        self.mounted = mounted
        self.scratch = scratch
        self.mode = mode
        self.promises = Promises()
        self.initramfs = scratch / "initramfs"
        make_initramfs(self.initramfs, scratch)
        raw = mounted.path / "golden.img"
        make_disk(raw, scratch)
        self.disk = raw
        if mode.format == "qcow2":
            for name in ("base.qcow2", "disk.qcow2"):
                backing_format = "raw" if self.disk is raw else "qcow2"
                overlay = mounted.path / name
                run("qemu-img", "create", "-q", "-f", "qcow2", "-b", self.disk, "-F", backing_format, overlay)
                self.disk = overlay

    @contextmanager
    def guest(self, versions: int) -> Iterator[Guest]:
        """Boot."""
        guest = Guest(self.initramfs, self.disk, self.mode, self.promises, versions=versions)
        try:
            yield guest
        finally:
            guest.close()

    def kill_qemu(self, syncs: int) -> None:
        """Kill qemu after so many syncs."""
        with self.guest(FOREVER) as guest:
            guest.wait_for_syncs(syncs)
            guest.kill()
        self.check()

    def kill_mount(self, syncs: int) -> None:
        """Kill the mount under the writing guest, then the guest, and mount again."""
        with self.guest(FOREVER) as guest:
            guest.wait_for_syncs(syncs)
            self.mounted.kill()
        self.mounted.remount()
        self.check()

    def power_off(self, versions: int) -> list[str]:
        """Let the guest work and end by itself. Returns its console."""
        with self.guest(versions) as guest:
            guest.wait_for_power_off()
        for name in ("f0", "f1"):  # removed by the guest at its end
            self.promises.synced.pop(name, None)
        self.check()
        return guest.lines

    def check(self) -> None:
        """The disk is whole and holds what the guest was told is durable."""
        if self.mode.format == "qcow2":
            run("qemu-img", "check", "-q", self.disk, allowed=(0, LEAKS))
        check_filesystem(self.disk, self.mode.format, self.scratch, self.promises)

    def check_volume(self) -> None:
        """Unmounted and sealed, the volume is sound; mounted again, the disk is still the same."""
        self.mounted.umount("--seal")
        for verb in ("fsck", "scrub"):
            self.mounted.run(verb, self.mounted.volume)
        self.mounted.remount()
        self.check()

    def run_rounds(self, victims: Sequence[str], noise: random.Random, syncs: int) -> None:
        """Kill the victims, one per round, after up to so many syncs."""
        for victim in victims:
            wait = noise.randint(syncs // 10 + 1, syncs)
            if victim == "mount":
                self.kill_mount(wait)
            else:
                self.kill_qemu(wait)
