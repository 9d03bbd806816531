"""mountinfo: the list of mounts as the kernel writes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blockfs.runtime.mountinfo import Mount, is_below, mount_of, parse, read_mounts

LINE = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"


def escaped(path: bytes) -> bytes:
    """As the kernel does: seq_path escapes these four."""
    return b"".join(b"\\%03o" % byte if byte in b" \t\n\\" else bytes([byte]) for byte in path)


def mount(mountpoint: bytes, source: bytes = b"/v") -> Mount:
    return Mount(root=b"/", mountpoint=mountpoint, filesystem_type="fuse.blocksync", source=source, device_minor=0)


def test_the_manual_pages_example_is_understood() -> None:
    assert parse(LINE) == [
        Mount(root=b"/mnt1", mountpoint=b"/mnt2", filesystem_type="ext3", source=b"/dev/root", device_minor=0),
    ]


def test_lines_without_optional_fields_are_understood() -> None:
    (found,) = parse(b"1 0 0:1 / /m rw - fuse.blocksync /v rw\n")
    assert (found.mountpoint, found.source) == (b"/m", b"/v")


def test_what_is_no_mountinfo_line_is_left_out() -> None:
    assert parse(b"garbage\n\n1 2 - x\n" + LINE) == parse(LINE)


@given(st.binary(min_size=1).map(lambda name: b"/" + name.replace(b"\0", b"")))
def test_any_path_survives_the_kernels_escapes(path: bytes) -> None:
    line = b"1 0 0:1 / " + escaped(path) + b" rw - fuse.blocksync " + escaped(path) + b" rw\n"
    (found,) = parse(line)
    assert (found.mountpoint, found.source) == (path, path)


def test_the_longest_mountpoint_above_a_path_wins() -> None:
    mounts = [mount(b"/"), mount(b"/a/b"), mount(b"/a")]
    assert mount_of(b"/a/b/c", mounts) == mounts[1]
    assert mount_of(b"/a/bc", mounts) == mounts[2]
    assert mount_of(b"/b", mounts) == mounts[0]


def test_the_newest_of_stacked_mounts_wins() -> None:
    mounts = [mount(b"/a", b"/old"), mount(b"/a", b"/new")]
    assert mount_of(b"/a", mounts) == mounts[1]


def test_a_path_on_no_mount_has_none() -> None:
    assert mount_of(b"/x", [mount(b"/a")]) is None


def test_below_counts_whole_names() -> None:
    assert is_below(b"/a/b", b"/a")
    assert is_below(b"/a", b"/a")
    assert is_below(b"/a", b"/")
    assert not is_below(b"/ab", b"/a")
    assert not is_below(b"/a", b"/a/b")


def test_this_machines_mounts_can_be_read() -> None:
    # Not "/": in a chroot it need not be a mount.
    with open("/proc/self/mountinfo", "rb") as file:
        assert len(read_mounts()) == len(file.read().splitlines()) > 0
