"""Native mounts of ordinary users: by the root helper, which must not do more for them than they may."""

from __future__ import annotations

from tests.system.namespaces import passed

HOST = """
mount -t tmpfs none /run
truncate -s 400M /mnt/host.img
mkfs.xfs -q -m reflink=1 /mnt/host.img
mkdir -m 1777 /mnt/host
mount -o loop,nodev /mnt/host.img /mnt/host
chmod 1777 /mnt/host
chown 65534:65534 /mnt/m
cd /mnt/project
"$PYTHON_BIN/python" -m blockfs.fuse.passthrough_helper >/dev/null 2>/mnt/helper.log &
helper=$!
trap 'kill $helper; cat /mnt/helper.log >&2; umount -l /mnt/m 2>/dev/null || true; umount -l /mnt/host || true' EXIT
until [ -S /run/blocksync/passthrough ]; do kill -0 $helper; done
cd /
python() { "$PYTHON_BIN/python" "$@"; }
"""
"""An XFS that every user can write to, and the helper."""

MOUNTED = """
as_nobody blocksync init /mnt/host/v
as_nobody blocksync mount /mnt/host/v /mnt/m
child() { pgrep -P $helper; }
"""


def test_an_ordinary_user_has_a_native_mount() -> None:
    shown = passed(
        HOST
        + MOUNTED
        + """
        as_nobody blocksync stats /mnt/m --json
        as_nobody "$PYTHON_BIN/python" -c '
import mmap
path = "/mnt/m/file"
with open(path, "wb") as file:
    file.write(bytes(8 << 20))
with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[0:6] = b"native"
    file.seek(4096)
    file.write(b"written")
    file.flush()
    print(mapped[0:6], mapped[4096:4103])
'
        ls /mnt/host/v/hot
        grep -E '^(Uid|CapEff|CapPrm|CapInh|NoNewPrivs)' /proc/$(child)/status
        as_nobody blocksync umount /mnt/m
        as_nobody blocksync mount /mnt/host/v /mnt/m --no-native
        as_nobody head -c 6 /mnt/m/file; echo
        as_nobody blocksync umount /mnt/m
        as_nobody blocksync fsck /mnt/host/v
    """
    )
    assert '"mode":"native"' in shown
    assert "b'native' b'written'\n" in shown
    assert "Uid:\t65534\t65534\t65534\t65534" in shown
    assert "CapPrm:\t0000000000200000\nCapEff:\t0000000000200000" in shown
    assert "CapInh:\t0000000000000000" in shown
    assert "NoNewPrivs:\t1" in shown
    assert "\nnative\n" in shown
    assert "0 findings" in shown


def test_a_mount_goes_on_without_the_helper_and_the_helper_without_the_mount() -> None:
    """Breaks when the helper's death hangs a mount, or a dead mount is kept alive by the helper."""
    shown = passed(
        HOST
        + MOUNTED
        + """
        as_nobody sh -c 'echo one >/mnt/m/one'
        kill -9 $(child)
        as_nobody sh -c 'echo two >/mnt/m/two; cat /mnt/m/one /mnt/m/two'
        as_nobody "$PYTHON_BIN/python" -c '
import os, sys
file = open("/mnt/m/open", "w+")
file.write("open")
file.flush()
print("kill", flush=True)
sys.stdin.readline()
file.close()
print(open("/mnt/m/open", "r+").read(), flush=True)
' < <(while ! [ -s /mnt/said ]; do :; done; kill -9 $(child); echo) | tee /mnt/said
        as_nobody blocksync umount /mnt/m
        as_nobody blocksync mount /mnt/host/v /mnt/m
        as_nobody sh -c 'exec 3>/mnt/m/three; echo three >&3; sync /mnt/m/three; kill -9 $(cat /mnt/host/v/lock)'
        refused as_nobody ls /mnt/m 2>/dev/null
        while child; do :; done
        as_nobody blocksync mount /mnt/host/v /mnt/m
        as_nobody cat /mnt/m/three
        as_nobody blocksync umount /mnt/m
        as_nobody blocksync fsck /mnt/host/v
    """
    )
    assert shown.startswith("one\ntwo\nkill\nopen\n")
    assert "three\n" in shown
    assert "0 findings" in shown


def test_nobody_gets_more_from_the_helper_than_he_may_do() -> None:
    """Another's file, or one that is open for reading, would be opened for writing by the kernel, unasked."""
    shown = passed(
        HOST
        + """
        echo root >/mnt/host/root; chmod 644 /mnt/host/root
        echo own >/mnt/host/own; chown 65534:65534 /mnt/host/own
        echo open >/mnt/host/open; chmod 666 /mnt/host/open
        echo own >/mnt/tmpfs; chown 65534:65534 /mnt/tmpfs
        as_nobody "$PYTHON_BIN/python" -c '
import array, errno, os, socket, struct, subprocess
from blockfs.fuse.passthrough_helper import CLOSE, CONNECTIONS_PER_USER, HELLO, OPEN, REQUEST, SOCKET

def connected():
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(SOCKET)
    return peer

def said(peer, message, *files):
    try:
        if files:
            socket.send_fds(peer, [message], files)
        else:
            peer.send(message)
        answer = peer.recv(4)
    except OSError as error:
        return "ended"
    if not answer:
        return "ended"
    number = struct.unpack("=i", answer)[0]
    return errno.errorcode[-number] if number < 0 else number

ours, theirs = socket.socketpair()
fusermount = subprocess.Popen(["fusermount3", "-o", "fsname=x", "/mnt/m"], pass_fds=[theirs.fileno()],
    env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())})
device = socket.recv_fds(ours, 1, 1)[1][0]
fusermount.wait()
peer = connected()
print("no hello", said(peer, REQUEST.pack(OPEN, 0), os.open("/mnt/host/own", os.O_RDWR)))
print("not fuse", said(peer, REQUEST.pack(HELLO, 0), os.open("/dev/null", os.O_RDWR)))
print("hello", said(peer, REQUEST.pack(HELLO, 0), device))
print("again", said(peer, REQUEST.pack(HELLO, 0), device))
for name, flags in (
    ("root", os.O_RDONLY), ("open", os.O_RDWR), ("own", os.O_RDONLY), ("own", os.O_WRONLY), ("own", os.O_PATH),
    ("own", os.O_RDWR | os.O_APPEND), (".", os.O_RDONLY), ("../tmpfs", os.O_RDWR), ("/proc/self/mem", os.O_RDWR),
    ("own", os.O_RDWR),
):
    print(name, flags, said(peer, REQUEST.pack(OPEN, 0), os.open(os.path.join("/mnt/host", name), flags)))
print("close", said(peer, REQUEST.pack(CLOSE, 7)))
print("what", said(peer, REQUEST.pack(77, 7)))
print("none", said(peer, REQUEST.pack(OPEN, 7)))
print("two", said(peer, REQUEST.pack(OPEN, 7), device, device))
print("three", said(peer, REQUEST.pack(OPEN, 7), device, device, device))
print("ended", said(peer, REQUEST.pack(HELLO, 0), device))
for message in (b"x", b"x" * 1000, b"x" * 100_000):
    print("garbage", said(connected(), message))
many = [connected() for _ in range(CONNECTIONS_PER_USER + 4)]
# Those before may still be ending: then they count, too.
print("many", 4 <= [said(one, REQUEST.pack(CLOSE, 0)) for one in many].count("ended") <= 8)
os.close(device)
'
        umount -l /mnt/m
        cat /mnt/host/root
    """
    )
    assert shown.splitlines() == [
        "no hello EINVAL",
        "not fuse ENOTTY",
        "hello 0",
        "again EINVAL",
        *(f"{name} EPERM" for name in ("root 0", "open 2", "own 0", "own 1", "own 2097152", "own 1026", ". 0")),
        "../tmpfs 2 EPERM",
        "/proc/self/mem 2 EPERM",
        "own 2 EPERM",  # the kernel's: passthrough was not agreed in INIT
        "close EINVAL",
        "what EINVAL",
        "none EINVAL",
        "two EINVAL",
        "three ended",
        "ended ended",
        *["garbage ended"] * 3,
        "many True",
        "root",
    ]


def test_another_users_helper_is_not_trusted() -> None:
    shown = passed("""
        mount -t tmpfs -o mode=1777 none /run
        truncate -s 400M /mnt/host.img
        mkfs.xfs -q -m reflink=1 /mnt/host.img
        mkdir /mnt/host
        mount -o loop /mnt/host.img /mnt/host
        trap 'umount -l /mnt/m 2>/dev/null || true; umount -l /mnt/host || true; kill $helper' EXIT
        chmod 1777 /mnt/host
        chown 65534:65534 /mnt/m
        cd /mnt/project
        setpriv --reuid 65533 --regid 65533 --clear-groups \\
            "$PYTHON_BIN/python" -m blockfs.fuse.passthrough_helper >/dev/null 2>&1 &
        helper=$!
        until [ -S /run/blocksync/passthrough ]; do kill -0 $helper; done
        as_nobody blocksync init /mnt/host/v
        as_nobody blocksync mount /mnt/host/v /mnt/m
        as_nobody blocksync stats /mnt/m --json
        as_nobody blocksync umount /mnt/m
    """)
    assert '"mode":"writeback"' in shown
    assert "not root's" in shown
