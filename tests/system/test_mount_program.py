"""mount(8), umount(8) and fstab, with the helper in /sbin of a private mount namespace."""

from __future__ import annotations

import json

from tests.system.namespaces import in_namespace, passed


def test_mount_and_umount_by_type() -> None:
    shown = passed("""
        blocksync init /mnt/v
        mount -t fuse.blocksync /mnt/v /mnt/m
        findmnt -n -o FSTYPE,SOURCE,OPTIONS /mnt/m
        dd if=/dev/urandom of=/mnt/data bs=64K count=20 status=none
        cp /mnt/data /mnt/m/file
        pid=$(holder /mnt/v)
        umount /mnt/m
        gone $pid
        mount -t fuse.blocksync /mnt/v /mnt/m
        cmp /mnt/data /mnt/m/file
        blocksync umount /mnt/m
        blocksync fsck /mnt/v
    """)
    kind, source, options = shown.splitlines()[0].split()
    assert (kind, source) == ("fuse.blocksync", "/mnt/v")
    assert {"rw", "nosuid", "nodev", "default_permissions"} <= set(options.split(","))
    assert "0 findings" in shown


def test_a_line_of_fstab_with_all_kinds_of_options() -> None:
    shown = passed("""
        blocksync init /mnt/v
        echo "/mnt/v /mnt/m fuse.blocksync \
ro,allow_other,noauto,user,_netdev,nofail,x-systemd.automount,noatime,nodev,nosuid,noexec,debug,comment=images 0 0" \
>/mnt/fstab
        mount --fstab /mnt/fstab --all     # noauto: not now
        refused mountpoint -q /mnt/m
        mount --fstab /mnt/fstab /mnt/m
        findmnt -n -o OPTIONS /mnt/m
        refused touch /mnt/m/file
        pid=$(holder /mnt/v)
        umount /mnt/m
        gone $pid
        echo "/mnt/v /mnt/m fuse.blocksync defaults 0 0" >/mnt/fstab
        mount --fstab /mnt/fstab --all
        touch /mnt/m/file
        blocksync umount /mnt/m
    """)
    assert {"ro", "nosuid", "nodev", "noexec", "noatime", "allow_other"} <= set(shown.split()[0].split(","))


def test_set_id_bits_and_devices_work_if_root_asks_for_them() -> None:
    """mount(8) takes `suid` and `dev` for defaults and drops them: they have names of our own."""
    shown = passed("""
        blocksync init /mnt/v
        try() {
            findmnt -n -o OPTIONS /mnt/m
            echo id $(as_nobody /mnt/m/id -u)
            head -c 0 /mnt/m/zero 2>/dev/null && echo device || echo none
            blocksync umount /mnt/m
        }
        mount -t fuse.blocksync -o allow_other /mnt/v /mnt/m
        cp /usr/bin/id /mnt/m/id; chmod 4755 /mnt/m/id; mknod /mnt/m/zero c 1 5
        blocksync umount /mnt/m
        mount -t fuse.blocksync -o suid,dev,allow_other /mnt/v /mnt/m
        try
        mount -t fuse.blocksync -o allow_suid,allow_dev,allow_other /mnt/v /mnt/m
        try
        echo "/mnt/v /mnt/m fuse.blocksync defaults,allow_suid,allow_dev,allow_other 0 0" >/mnt/fstab
        mount --fstab /mnt/fstab /mnt/m
        try
    """).splitlines()
    assert {"nosuid", "nodev"} <= set(shown[0].split(","))
    assert shown[1:3] == ["id 65534", "none"]
    for options, uid, device in (shown[3:6], shown[6:9]):
        assert not {"nosuid", "nodev"} & set(options.split(","))
        assert (uid, device) == ("id 0", "device")


def test_a_mount_right_after_umount_waits_for_the_last_commit() -> None:
    """umount(8) returns when the kernel has let go; the mount process still holds the volume and commits."""
    passed("""
        blocksync init /mnt/v
        for round in 1 2 3; do
            mount -t fuse.blocksync /mnt/v /mnt/m
            dd if=/dev/urandom of=/mnt/m/file$round bs=1M count=8 status=none
            pid=$(holder /mnt/v)
            umount /mnt/m
        done
        gone $pid
        mount -t fuse.blocksync /mnt/v /mnt/m
        [ $(ls /mnt/m | wc -l) = 3 ]
        blocksync umount /mnt/m
    """)


def test_signals_during_the_last_commit_lose_nothing() -> None:
    """A system that shuts down unmounts, and sends SIGTERM to who is still there. Thousands nest no handlers."""
    passed("""
        blocksync init /mnt/v
        for unmounted_by in umount signals; do
            mount -t fuse.blocksync /mnt/v /mnt/m
            pid=$(holder /mnt/v)
            dd if=/dev/urandom of=/mnt/data bs=64K count=40 status=none
            cp /mnt/data /mnt/m/$unmounted_by
            [ $unmounted_by = signals ] || umount /mnt/m
            for killer in 1 2; do
                while kill -TERM $pid 2>/dev/null; do :; done &
            done
            gone $pid
            wait
            mount -t fuse.blocksync /mnt/v /mnt/m
            cmp /mnt/data /mnt/m/$unmounted_by || { cat /mnt/v/mount.log >&2; exit 99; }
            blocksync umount /mnt/m
        done
    """)


def test_umount_says_who_keeps_the_mount_alive_in_another_namespace() -> None:
    """It waited for ever, without a word. What was written is durable; the process ends when the last copy is gone."""
    shown = passed("""
        blocksync init /mnt/v
        blocksync mount /mnt/v /mnt/m
        mkfifo /mnt/ready /mnt/over
        unshare --mount --propagation private sh -c 'echo >/mnt/ready; read _ </mnt/over' &
        other=$!
        read _ </mnt/ready
        pid=$(holder /mnt/v)
        echo written >/mnt/m/file
        code=0; blocksync umount /mnt/m --json 2>/mnt/told || code=$?
        echo $code $pid $other
        cat /mnt/told
        refused mountpoint -q /mnt/m
        kill -0 $pid
        nsenter --target $other --mount umount /mnt/m
        gone $pid
        echo >/mnt/over
        blocksync mount /mnt/v /mnt/m
        [ "$(cat /mnt/m/file)" = written ]
        blocksync umount /mnt/m --json
    """).splitlines()
    held, error, done = (json.loads(line) for line in shown if line.startswith("{"))
    code, pid, other = next(line for line in shown if line[0].isdigit()).split()
    (told,) = (line for line in shown if line.startswith("blocksync: "))
    assert error["exit_code"] == 11
    assert (held["state"], held["volume"], code) == ("held", "/mnt/v", "11")
    assert held["holders"] == [{"pid": int(other), "command": "sh", "mountpoint": "/mnt/m"}]
    assert f"nsenter --target {other} --mount umount /mnt/m" in told
    assert f"mount process {pid} goes on" in told
    assert (done["state"], done["holders"]) == ("unmounted", [])


def test_umount_names_another_mountpoint_of_the_same_mount() -> None:
    shown = passed("""
        blocksync init /mnt/v
        blocksync mount /mnt/v /mnt/m
        mkdir /mnt/second /mnt/m/folder
        mount --bind /mnt/m/folder /mnt/second
        pid=$(holder /mnt/v)
        code=0; blocksync umount /mnt/m 2>&1 || code=$?
        echo $code
        umount /mnt/second
        gone $pid
    """)
    assert "mounted at /mnt/second, too: `umount /mnt/second`" in shown
    assert shown.splitlines()[-1] == "11"


def test_umount_of_a_bind_mount_leaves_the_mount_and_the_last_one_ends_its_process() -> None:
    """It unmounted the mount, said so of the bind mount, and could not unmount that at all when it was the last."""
    shown = passed("""
        blocksync init /mnt/v
        blocksync mount /mnt/v /mnt/m
        mkdir /mnt/second /mnt/m/folder
        mount --bind /mnt/m/folder /mnt/second
        pid=$(holder /mnt/v)
        echo written >/mnt/second/file
        code=0; blocksync umount /mnt/second 2>&1 || code=$?
        refused mountpoint -q /mnt/second
        mountpoint -q /mnt/m
        mount --bind /mnt/m/folder /mnt/second
        refused blocksync umount /mnt/m
        blocksync umount /mnt/second --json
        gone $pid
        blocksync mount /mnt/v /mnt/m --read-only
        mount --bind /mnt/m/folder /mnt/second
        [ "$(cat /mnt/second/file)" = written ]
        refused blocksync umount /mnt/m
        blocksync umount /mnt/second
        echo $code
    """)
    assert "/mnt/second is unmounted" in shown
    assert "mounted at /mnt/m, too: `umount /mnt/m`" in shown
    assert shown.splitlines()[-1] == "11"


def test_umount_in_another_namespace_unmounts_what_that_one_has() -> None:
    shown = passed("""
        blocksync init /mnt/v
        blocksync mount /mnt/v /mnt/m
        code=0; unshare --mount --propagation private sh -c \
            'blocksync umount /mnt/m; code=$?; mountpoint -q /mnt/m && exit 1; exit $code' || code=$?
        mountpoint -q /mnt/m
        blocksync umount /mnt/m
        echo $code
    """)
    assert shown.splitlines()[-1] == "11"


def test_what_the_helper_refuses_mount_reports() -> None:
    for arguments, words in (
        ("-o ro,compress=zstd /mnt/v /mnt/m", "mount option 'compress=zstd'"),
        ("-o remount,ro /mnt/v /mnt/m", "the kernel alone changes a mount"),
        ("/mnt /mnt/m", "no blocksync volume"),
        ("/mnt/v /mnt", "inside each other"),
    ):
        done = in_namespace(f"blocksync init /mnt/v; mount -t fuse.blocksync {arguments}")
        assert done.returncode in {1, 32}
        assert words in done.stderr
    passed("""
        blocksync init /mnt/v
        mount --fake -s -t fuse.blocksync -o unheard,of /mnt/v /mnt/m
        refused mountpoint -q /mnt/m
    """)
