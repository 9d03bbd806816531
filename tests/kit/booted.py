"""A Debian tree, booted by its own systemd in a guest, that runs one script as root.

The script tells on the second serial port: the first one is the console, which systemd hangs up.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.kit.debian import done, run_in
from tests.real.guest import KERNEL, SYSTEM_PATH, make_initramfs

PACKAGES: Final = ("systemd-sysv", "libpam-systemd", "dbus", "udev", "iproute2", "python3", "fuse3")
"""What a tree needs to be booted, and what the package of this clone depends on: a guest has no network."""

PATIENCE_S: Final = 600
_MODULE: Final = "fuse"
_START: Final = f"""
/bin/busybox insmod /{_MODULE}.ko
exec /bin/busybox switch_root /root /lib/systemd/systemd
"""
_UNIT: Final = """\
[Unit]
After=multi-user.target

[Service]
ExecStart=/bin/sh -eu /life
ExecStopPost=/bin/sh -c 'echo "ended: $$SERVICE_RESULT"; journalctl --no-pager -b -n 200 -o short-monotonic'
ExecStopPost=systemctl poweroff --force --force
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS1

[Install]
WantedBy=multi-user.target
"""


def booted(tree: Path, script: str, home: Path) -> str:
    """What a script says in a guest; the tree itself is not changed by it.

    Args:
        tree: Has `PACKAGES`.
        script: For sh, run when the guest is up. It has half a gigabyte.
        home: For the guest's disk.

    Raises:
        AssertionError: It did not end with success. Has what it said, and the guest's journal.
    """
    (tree / "etc/systemd/system/life.service").write_text(_UNIT)
    run_in(tree, "systemctl --quiet enable life.service")
    (tree / "life").write_text(script)
    disk, initramfs, told = home / "disk.img", home / "initramfs", home / "told"
    used_kib = int(done("du", "-sk", tree).split()[0])
    make_disk = (
        "mke2fs",
        "-q",
        "-F",
        "-t",
        "ext4",
        "-O",
        "^has_journal",
        "-d",
        tree,
        disk,
        f"{used_kib * 5 // 4 + (1 << 19)}k",
    )
    done(*make_disk, PATH=SYSTEM_PATH)
    make_initramfs(initramfs, home, _START, modules=(_MODULE,))
    command = [
        "qemu-system-x86_64",
        "-accel",
        "tcg,thread=multi",
        "-smp",
        "2",
        "-m",
        "1024",
        "-nodefaults",
        "-no-reboot",
    ]
    command += ["-display", "none", "-serial", f"file:{home / 'console'}", "-serial", f"file:{told}"]
    command += [
        "-kernel",
        str(KERNEL / "vmlinuz"),
        "-initrd",
        str(initramfs),
        "-append",
        "console=ttyS0 quiet panic=-1",
    ]
    command += ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE_S)
    finally:
        disk.unlink()
    said, _, after = told.read_text(errors="replace").replace("\r", "").partition("ended: ")
    assert after.startswith("success\n"), f"{said}\nended: {after}"
    return said
