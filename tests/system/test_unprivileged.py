"""Mounts of an ordinary user, by fusermount3."""

from __future__ import annotations

from tests.system.namespaces import in_namespace, passed


def test_an_ordinary_user_mounts_uses_and_unmounts() -> None:
    shown = passed("""
        chown 65534:65534 /mnt/m
        as_nobody blocksync init /mnt/v
        as_nobody blocksync mount /mnt/v /mnt/m
        as_nobody sh -c 'echo mine >/mnt/m/file; cat /mnt/m/file'
        findmnt -n -o OPTIONS /mnt/m
        refused ls /mnt/m            # without allow_other not even root
        as_nobody blocksync stats /mnt/m --json
        as_nobody blocksync flush /mnt/m
        as_nobody blocksync umount /mnt/m
        as_nobody blocksync mount /mnt/v /mnt/m
        pid=$(holder /mnt/v)
        as_nobody fusermount3 -u /mnt/m
        gone $pid
        as_nobody blocksync mount /mnt/v /mnt/m
        pid=$(holder /mnt/v)
        as_nobody kill -TERM $pid          # also unmounts by fusermount3
        gone $pid
        refused mountpoint -q /mnt/m
        as_nobody blocksync fsck /mnt/v
    """)
    assert shown.startswith("mine\n")
    assert "user_id=65534" in shown
    assert "0 findings" in shown


def test_only_the_owner_and_root_control_a_mount() -> None:
    done = in_namespace("""
        chown 65534:65534 /mnt/m
        chmod 755 /mnt
        mkdir -m 777 /mnt/home
        as_nobody blocksync init /mnt/home/v
        as_nobody blocksync mount /mnt/home/v /mnt/m -o allow_other
    """)
    assert done.returncode == 2
    assert "user_allow_other" in done.stderr
    done = in_namespace("""
        chown 65534:65534 /mnt/m
        echo user_allow_other >/mnt/fuse.conf
        mount --bind /mnt/fuse.conf /etc/fuse.conf
        as_nobody blocksync init /mnt/v
        as_nobody blocksync mount /mnt/v /mnt/m --allow-other
        blocksync stats /mnt/m --json      # root
        ls /mnt/m
        chmod 755 /mnt/v
        chmod 666 /mnt/v/control.sock
        trap 'as_nobody blocksync umount /mnt/m' EXIT
        as_user 65533 blocksync stats /mnt/v
    """)
    assert done.returncode == 12
    assert "only that user and root" in done.stderr


def test_the_user_option_of_fstab_lets_a_user_mount() -> None:
    """mount(8) drops its rights before it runs the helper, so this is the unprivileged way too."""
    passed("""
        chown 65534:65534 /mnt/m
        as_nobody blocksync init /mnt/v
        echo '/mnt/v /mnt/m fuse.blocksync noauto,user 0 0' >/mnt/fstab
        mount --bind /mnt/fstab /etc/fstab
        as_nobody mount /mnt/m
        as_nobody touch /mnt/m/file
        pid=$(holder /mnt/v)
        as_nobody umount /mnt/m
        gone $pid
    """)


def test_a_device_that_the_user_can_not_open_is_named() -> None:
    done = in_namespace("""
        chown 65534:65534 /mnt/m
        as_nobody blocksync init /mnt/v
        chmod 600 /mnt/dev/fuse
        as_nobody blocksync mount /mnt/v /mnt/m
    """)
    assert done.returncode == 1
    assert "/dev/fuse" in done.stderr
