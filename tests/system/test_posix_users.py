"""Several users on one mount: permissions, sticky directories, set-id bits and POSIX ACLs, as on ext4."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import shutil
import struct
from collections.abc import Callable
from functools import partial

import pytest

from tests.conftest import Mounted
from tests.system.posix import ALICE, BOB, CAROL, MAKERS, ROOT, Pair, User, answer, renameat2, run, run_as, shape

UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
_libc = ctypes.CDLL(None, use_errno=True)

# Setgid without group execution grants nothing. FUSE's part of the kernel lets it stay where ext4 removes it
# (docs/reference/posix.md), so the modes here have both or none.
MODES = [0o6777, 0o2755, 0o4666, 0o1640]
OWNERS = [(4001, 4001), (4001, 4003), (4002, 4001), (0, 0)]


def utimensat(path: str, atime_ns: int, mtime_ns: int) -> None:
    """With UTIME_NOW and UTIME_OMIT."""
    times = (ctypes.c_long * 4)(0, atime_ns, 0, mtime_ns)
    if _libc.utimensat(-100, path.encode(), times, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def write(path: str, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_WRONLY | flags)
    os.write(descriptor, b"x")
    os.close(descriptor)


def write_mapped(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.ftruncate(descriptor, 10)
    with mmap.mmap(descriptor, 10) as mapped:
        mapped[0] = 1
    os.close(descriptor)


def open_and_cut(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def remove(path: str) -> None:
    (os.rmdir if os.path.isdir(path) else os.unlink)(path)


CALLS: dict[str, Callable[[str], object]] = {
    "chown to root": lambda path: os.chown(path, 0, 0),
    "chown to its owner": lambda path: os.chown(path, 4001, -1),
    "chgrp to a foreign group": lambda path: os.chown(path, -1, 7),
    "chgrp to Alice's": lambda path: os.chown(path, -1, 4001),
    "chmod 2755": lambda path: os.chmod(path, 0o2755),
    "chmod 6744": lambda path: os.chmod(path, 0o6744),
    "write": write,
    "append": partial(write, flags=os.O_APPEND),
    "write through a map": write_mapped,
    "truncate": lambda path: os.truncate(path, 0),
    "open O_TRUNC": open_and_cut,
    "utimes now": os.utime,
    "utimes": lambda path: os.utime(path, ns=(5, 6)),
    "utimensat omit": lambda path: utimensat(path, UTIME_OMIT, UTIME_OMIT),
    "utimensat atime now": lambda path: utimensat(path, UTIME_NOW, UTIME_OMIT),
    "setxattr user": lambda path: os.setxattr(path, "user.a", b"1"),
    "setxattr trusted": lambda path: os.setxattr(path, "trusted.a", b"1"),
    "setxattr security": lambda path: os.setxattr(path, "security.a", b"1"),
    "getxattr": lambda path: os.getxattr(path, "user.a"),
    "readdir": os.listdir,
    "create in it": lambda path: os.mkdir(f"{path}/new"),
    "remove": remove,
    "rename": lambda path: os.rename(path, f"{path}-moved"),
    "hard link": lambda path: os.link(path, f"{path}-linked"),
}
CASES = list(itertools.product(MODES, ["file", "directory"], OWNERS, CALLS))


def prepare() -> None:
    """What root leaves to the others: each case's object, in a sticky directory for all."""
    os.chmod(".", 0o1777)
    for number, (mode, kind, owner, _) in enumerate(CASES):
        MAKERS[kind](f"{number}")
        os.chown(f"{number}", *owner)
        os.chmod(f"{number}", mode)


def call_all() -> dict[tuple[object, ...], object]:
    found: dict[tuple[object, ...], object] = {}
    for number, (mode, kind, owner, name) in enumerate(CASES):
        given = answer(CALLS[name], f"{number}")
        found[oct(mode), kind, owner, name] = given, answer(shape, f"{number}")
    return found


@pytest.mark.parametrize("user", [ALICE, BOB, CAROL], ids=["owner", "in-the-group", "stranger"])
def test_users_may_do_what_they_may_on_ext4(pair: Pair, user: User) -> None:
    pair.same(prepare)
    pair.same(call_all, user)


def set_ids() -> dict[tuple[object, ...], object]:
    found: dict[tuple[object, ...], object] = {}
    cases = itertools.product([0o6777, 0o4755, 0o2755, 0o2744, 0o7777], ["file", "directory", "fifo"], CALLS)
    for number, (mode, kind, name) in enumerate(cases):
        if kind == "fifo" and CALLS[name] in {write, open_and_cut, write_mapped, CALLS["append"]}:
            continue
        MAKERS[kind](f"{number}")
        os.chmod(f"{number}", mode)
        found[oct(mode), kind, name] = answer(CALLS[name], f"{number}"), answer(shape, f"{number}")
    return found


def test_set_id_bits_of_root_change_as_on_ext4(pair: Pair) -> None:
    pair.same(set_ids)


CHANGES: dict[str, Callable[[str], object]] = {
    "write": write,
    "append": partial(write, flags=os.O_APPEND),
    "write at once": partial(write, flags=os.O_DSYNC),
    "write through a map": write_mapped,
    "truncate": lambda path: os.truncate(path, 3),
    "open O_TRUNC": open_and_cut,
    "copy into it": lambda path: shutil.copyfile("source", path),
}


def prepare_programs() -> None:
    """Programs of root, that run as root, and that everybody may write to."""
    with open("source", "wb") as source:
        source.write(b"s" * 200_000)
    for name in CHANGES:
        shutil.copyfile("source", name)
        os.chmod(name, 0o6777)


def change_programs() -> dict[str, str]:
    """The modes afterwards, as the kernel knows them: `stat -c %a` asks for no more, and so gets what it keeps."""
    for name, change in CHANGES.items():
        change(name)
    return {name: run("stat", "-c", "%a", name).stdout for name in CHANGES}


def test_what_somebody_else_wrote_is_not_run_with_the_set_id_bits_of_what_was_there(pair: Pair) -> None:
    """A program is run by what the kernel keeps of its mode; it keeps it for a day."""
    pair.same(prepare_programs)
    assert set(pair.same(change_programs, CAROL).values()) == {"777\n"}


STICKY = [
    ("sticky", 0o1777, (0, 0)),
    ("own", 0o1777, (4001, 4001)),
    ("plain", 0o777, (0, 0)),
    ("closed", 0o755, (0, 0)),
]


def prepare_sticky() -> None:
    for name, mode, owner in STICKY:
        os.mkdir(name)
        for entry, owner_of_entry in (("alice", 4001), ("bob", 4002)):
            for kind in ("file", "directory"):
                MAKERS[kind](f"{name}/{entry}-{kind}")
                os.chown(f"{name}/{entry}-{kind}", owner_of_entry, owner_of_entry)
        os.chown(name, *owner)
        os.chmod(name, mode)


def rename_among_sticky() -> dict[tuple[object, ...], object]:
    """All renames and removals between directories, each undone by nothing: the order is the same everywhere."""
    names = [
        f"{name}/{entry}-{kind}"
        for name, _, _ in STICKY
        for entry in ("alice", "bob")
        for kind in ("file", "directory")
    ]
    found: dict[tuple[object, ...], object] = {}
    for source, target, flags in itertools.product(names, names, (2, 1, 0)):
        found[source, target, flags] = answer(renameat2, source, target, flags)
    for name in names:
        found[name, "removed"] = answer(remove, name)
    return found


@pytest.mark.parametrize("user", [ALICE, BOB, CAROL], ids=["alice", "bob", "carol"])
def test_sticky_directories_protect_as_on_ext4(pair: Pair, user: User) -> None:
    pair.same(prepare_sticky)
    pair.same(rename_among_sticky, user)


def make_everything() -> dict[str, object]:
    """What a user makes in setgid and other directories, under several umasks."""
    for kind in ("file", "directory", "fifo", "socket", "symlink"):
        for umask in (0, 0o022, 0o077):
            os.umask(umask)
            for folder in ("setgid", "plain"):
                MAKERS[kind](f"{folder}/{kind}-{umask}")
    os.umask(0)
    os.close(os.open("setgid/executable", os.O_CREAT | os.O_WRONLY, 0o6775))
    os.mkdir("setgid/d", 0o6775)
    return {
        os.path.join(top, name): shape(os.path.join(top, name))
        for top, folders, names in os.walk(".")
        for name in [*folders, *names]
    }


@pytest.mark.parametrize("user", [ROOT, ALICE, BOB, CAROL], ids=["root", "alice", "bob", "carol"])
def test_new_files_get_their_owner_group_and_mode_as_on_ext4(pair: Pair, user: User) -> None:
    def folders() -> None:
        os.umask(0)
        for name, mode in (("setgid", 0o2777), ("plain", 0o777)):
            os.mkdir(name)
            os.chown(name, 0, 4001)
            os.chmod(name, mode)

    pair.same(folders)
    pair.same(make_everything, user)


# --- POSIX ACLs ---

OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS = 1, 2, 4, 8, 16, 32
NOBODY = 0xFFFFFFFF
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def acl(*entries: tuple[int, int, int]) -> bytes:
    """An ACL's bytes from (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def usual(owner: int, group: int, others: int, *named: tuple[int, int, int], mask: int | None = None) -> bytes:
    """An ACL in the order that the kernel wants."""
    users = [entry for entry in named if entry[0] == USER]
    groups = [entry for entry in named if entry[0] == GROUP]
    masks = [] if mask is None else [(MASK, mask, NOBODY)]
    return acl((OWNER, owner, NOBODY), *users, (OWNING_GROUP, group, NOBODY), *groups, *masks, (OTHERS, others, NOBODY))


LISTS = {
    "minimal": usual(6, 4, 0),
    "bob may write": usual(6, 4, 0, (USER, 6, 4002), mask=6),
    "bob is masked": usual(6, 4, 4, (USER, 6, 4002), mask=4),
    "bob may not": usual(7, 5, 5, (USER, 0, 4002), mask=7),
    "alice's group": usual(6, 0, 0, (GROUP, 7, 4001), mask=7),
    "two of each": usual(7, 1, 2, (USER, 1, 4001), (USER, 7, 4003), (GROUP, 2, 4001), (GROUP, 3, 4003), mask=7),
    "no mask": usual(6, 4, 0, (USER, 6, 4002)),
    "unsorted": acl((OTHERS, 4, NOBODY), (OWNER, 6, NOBODY), (OWNING_GROUP, 4, NOBODY)),
    "double": usual(6, 4, 4, (USER, 6, 4002), (USER, 6, 4002), mask=7),
    "incomplete": acl((OWNER, 6, NOBODY)),
    "empty": acl(),
    "short": b"\2\0\0",
    "too permissive": usual(15, 4, 4),
}


def set_lists() -> dict[tuple[object, ...], object]:
    found: dict[tuple[object, ...], object] = {}
    for (name, value), kind, attribute in itertools.product(LISTS.items(), ["file", "directory"], [ACCESS, DEFAULT]):
        path = f"{kind} {name} {attribute}"
        MAKERS[kind](path)
        os.chmod(path, 0o2750)
        found[path] = answer(os.setxattr, path, attribute, value), shape(path), answer(os.getxattr, path, attribute)
        found[path, "names"] = sorted(os.listxattr(path))
        for mode in (0o777, 0o2604, 0):
            os.chmod(path, mode)
            found[path, mode] = answer(os.getxattr, path, attribute), shape(path)
        if kind == "directory":
            os.mkdir(f"{path}/d", 0o775)
            os.close(os.open(f"{path}/f", os.O_CREAT | os.O_WRONLY, 0o664))
            os.symlink("x", f"{path}/s")
            for made in ("d", "f"):
                lists = [answer(os.getxattr, f"{path}/{made}", attribute) for attribute in (ACCESS, DEFAULT)]
                found[path, made] = shape(f"{path}/{made}"), lists
        found[path, "removed"] = answer(os.removexattr, path, attribute), shape(path), sorted(os.listxattr(path))
    return found


def test_acls_are_kept_cut_and_inherited_as_on_ext4(pair: Pair) -> None:
    pair.same(set_lists, User(0, 0, umask=0))


def use_files() -> dict[str, object]:
    found: dict[str, object] = {}
    for name in LISTS:
        for flags in (os.O_RDONLY, os.O_WRONLY):
            found[f"{name} {flags}"] = answer(lambda n=name, f=flags: os.close(os.open(n, f)))  # type: ignore[misc]
        found[f"{name} executed"] = os.access(name, os.X_OK)
        found[f"{name} chmod"] = answer(os.chmod, name, 0o777)
        found[f"{name} set"] = answer(os.setxattr, name, ACCESS, LISTS["minimal"])
    return found


@pytest.mark.parametrize("user", [ALICE, BOB, CAROL], ids=["alice", "bob", "carol"])
def test_acls_are_enforced_as_on_ext4(pair: Pair, user: User) -> None:
    def make() -> None:
        for name, value in LISTS.items():
            MAKERS["file"](name)
            os.chown(name, 4001, 4001)
            answer(os.setxattr, name, ACCESS, value)

    pair.same(make)
    pair.same(use_files, user)


def test_an_acl_set_by_a_stranger_to_the_group_clears_setgid(pair: Pair) -> None:
    def make() -> None:
        for name, group in (("own", 4001), ("foreign", 4003)):
            MAKERS["file"](name)
            os.chown(name, 4001, group)
            os.chmod(name, 0o2755)

    def set_list() -> dict[str, object]:
        for name in ("own", "foreign"):
            os.setxattr(name, ACCESS, usual(7, 7, 5, (USER, 6, 4002), mask=7))
        return {name: shape(name) for name in ("own", "foreign")}

    pair.same(make)
    pair.same(set_list, ALICE)


def make_one_of_each() -> dict[tuple[str, str], object]:
    """What is made in a directory with a default ACL, and in one without."""
    found: dict[tuple[str, str], object] = {}
    for folder in ("listed", "plain"):
        os.mkdir(folder)
        if folder == "listed":
            os.setxattr(folder, DEFAULT, usual(7, 7, 6, (USER, 7, 4002), mask=7))
        for kind in MAKERS.keys() - {"nothing"}:
            MAKERS[kind](f"{folder}/{kind}")
            found[folder, kind] = shape(f"{folder}/{kind}")
        os.mkdir(f"{folder}/open", 0o777)
        os.close(os.open(f"{folder}/created", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mknod(f"{folder}/node", 0o666)
        for name in ("open", "created", "node"):
            lists = [answer(os.getxattr, f"{folder}/{name}", attribute) for attribute in (ACCESS, DEFAULT)]
            found[folder, name] = shape(f"{folder}/{name}"), lists
    return found


@pytest.mark.parametrize("umask", [0, 0o027, 0o777])
def test_the_umask_does_not_count_where_there_is_a_default_acl(pair: Pair, frontend: str | None, umask: int) -> None:
    """As on ext4; but with pyfuse3, which can't ask the kernel for the whole mode, it always counts."""
    user = User(0, 0, umask=umask)
    if frontend != "pyfuse3":
        pair.same(make_one_of_each, user)
        return
    ours, theirs = (run_as(user, place, make_one_of_each) for place in (pair.mount, pair.ext4))
    for place, name in ours:
        if place == "plain":
            assert ours[place, name] == theirs[place, name]
    assert run_as(user, pair.mount, partial(_mode, "listed/created")) == 0o666 & ~umask


def _mode(path: str) -> int:
    return os.stat(path).st_mode & 0o777


def test_acls_survive_a_remount(pair: Pair, open_mount: Mounted) -> None:
    lists = {ACCESS: LISTS["bob is masked"], DEFAULT: LISTS["bob may not"]}
    for name, value in lists.items():
        os.setxattr(pair.mount, name, value)
    open_mount.umount()
    open_mount.machines.remount(open_mount.name, "--allow-other")
    assert {name: os.getxattr(pair.mount, name) for name in lists} == lists
