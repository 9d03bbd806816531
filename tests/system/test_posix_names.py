"""Names on a mount: what every call answers for every kind of thing, and what is there afterwards, as on ext4."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable

from tests.system.posix import EXCHANGE, MAKERS, NOREPLACE, WHITEOUT, Pair, answer, make_file, renameat2, shape

Table = dict[tuple[object, ...], tuple[object, object]]
"""Case → the answer, and what is there afterwards."""


def opens(flags: int) -> Callable[[str], None]:
    """Open and close; O_NONBLOCK, because a fifo would wait for its other end."""
    return lambda path: os.close(os.open(path, flags | os.O_NONBLOCK, 0o640))


CALLS: dict[str, Callable[[str], object]] = {
    "open O_RDONLY": opens(os.O_RDONLY),
    "open O_WRONLY": opens(os.O_WRONLY),
    "open O_RDWR": opens(os.O_RDWR),
    "open O_CREAT": opens(os.O_WRONLY | os.O_CREAT),
    "open O_CREAT O_EXCL": opens(os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "open O_TRUNC": opens(os.O_WRONLY | os.O_TRUNC),
    "open O_RDONLY O_TRUNC": opens(os.O_RDONLY | os.O_TRUNC),
    "open O_CREAT O_TRUNC": opens(os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    "open O_DIRECTORY": opens(os.O_DIRECTORY),
    "open O_CREAT O_DIRECTORY": opens(os.O_CREAT | os.O_DIRECTORY),
    "open O_NOFOLLOW": opens(os.O_NOFOLLOW),
    "open O_PATH": opens(os.O_PATH),
    "open O_PATH O_NOFOLLOW": opens(os.O_PATH | os.O_NOFOLLOW),
    "mkdir": os.mkdir,
    "mkfifo": os.mkfifo,
    "mknod without type": lambda path: os.mknod(path, 0o600),
    "mknod of a directory": lambda path: os.mknod(path, stat.S_IFDIR | 0o600),
    "mknod of a symlink": lambda path: os.mknod(path, stat.S_IFLNK | 0o600),
    "mknod of a disk": lambda path: os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(300, 70000)),
    "symlink": lambda path: os.symlink("target", path),
    "symlink to an empty name": lambda path: os.symlink("", path),
    "link to it": lambda path: os.link("other", path, follow_symlinks=False),
    "link from it": lambda path: os.link(path, "new", follow_symlinks=False),
    "link from what it leads to": lambda path: os.link(path, "new", follow_symlinks=True),
    "unlink": os.unlink,
    "rmdir": os.rmdir,
    "rename from it": lambda path: os.rename(path, "new"),
    "rename to it": lambda path: os.rename("other", path),
    "truncate": lambda path: os.truncate(path, 5),
    "chmod": lambda path: os.chmod(path, 0o7777),
    "chown": lambda path: os.chown(path, 5, 6),
    "lchown": lambda path: os.lchown(path, 5, 6),
    "utimensat": lambda path: os.utime(path, ns=(1, 2)),
    "utimensat AT_SYMLINK_NOFOLLOW": lambda path: os.utime(path, ns=(1, 2), follow_symlinks=False),
    "readlink": os.readlink,
    "readdir": lambda path: sorted(os.listdir(path)),
    "chdir": os.chdir,
    "statvfs": lambda path: os.statvfs(path).f_namemax,
    "setxattr": lambda path: os.setxattr(path, "user.x", b"1"),
    "lsetxattr": lambda path: os.setxattr(path, "user.x", b"1", follow_symlinks=False),
    "lsetxattr trusted": lambda path: os.setxattr(path, "trusted.x", b"1", follow_symlinks=False),
    "getxattr": lambda path: os.getxattr(path, "user.x"),
    "listxattr": os.listxattr,
    "removexattr": lambda path: os.removexattr(path, "user.x"),
}

PATHS = {kind: ["it", "it/", "it/below"] for kind in MAKERS}
PATHS["directory"] += ["it/.", "it/..", "it/" + "n" * 256]
PATHS["file"] += ["it/.", "n" * 255, "n" * 256, "n" * 256 + "/it", "", "./" * 2046 + "abc", "./" * 2047 + "ab"]

# Mounts are nodev by default (docs/reference/posix.md), the host's filesystem is not: opening one differs as it should.
OPENS_A_DEVICE = {name for name in CALLS if name.startswith("open O_") and "PATH" not in name}


def every_call_on_every_name() -> Table:
    """Each call in a folder of its own: its answer, and what it left."""
    found: Table = {}
    top = os.open(".", os.O_RDONLY)
    cases = ((kind, path, name) for kind, paths in PATHS.items() for path in paths for name in CALLS)
    for number, (kind, path, name) in enumerate(cases):
        if kind == "device" and name in OPENS_A_DEVICE:
            continue
        os.mkdir(f"{number}")
        os.chdir(f"{number}")
        os.close(os.open("other", os.O_CREAT | os.O_WRONLY))
        MAKERS[kind]("it")
        given = answer(CALLS[name], path)
        os.fchdir(top)
        os.chdir(f"{number}")
        found[kind, path, name] = given, {left: shape(left) for left in os.listdir(".")}
        os.fchdir(top)
    return found


def test_every_call_answers_as_on_ext4(pair: Pair) -> None:
    table = pair.same(every_call_on_every_name)
    assert table["file", "n" * 256, "open O_CREAT"][0] == "ENAMETOOLONG"
    assert table["loop", "it", "open O_RDONLY"][0] == "ELOOP"
    assert table["full", "it", "rmdir"][0] == "ENOTEMPTY"


def every_rename() -> Table:
    """Each kind onto each kind, with all flags, within a directory and into one below."""
    found: Table = {}
    flags = [0, NOREPLACE, EXCHANGE, NOREPLACE | EXCHANGE, EXCHANGE | WHITEOUT, 8]
    cases = itertools.product(MAKERS, MAKERS, flags, ["to", "sub/to"])
    for number, (source, target, flag, to) in enumerate(cases):
        os.makedirs(f"{number}/sub")
        MAKERS[source](f"{number}/from")
        MAKERS[target](f"{number}/{to}")
        paths = [f"{number}/from", f"{number}/{to}", f"{number}", f"{number}/sub"]
        given = answer(renameat2, paths[0], paths[1], flag)
        found[source, target, flag, to] = given, [answer(shape, path) for path in paths]
    return found


def test_every_rename_answers_as_on_ext4(pair: Pair) -> None:
    table = pair.same(every_rename)
    assert table["file", "full", 0, "to"][0] == "EISDIR"
    assert table["directory", "full", 0, "to"][0] == "ENOTEMPTY"


def renames_among_relatives() -> dict[str, object]:
    """Sources and targets that contain each other or are the same."""
    os.makedirs("a/b/c")
    os.makedirs("other/deep")
    make_file("one")
    os.link("one", "two")
    pairs = {
        "into itself": ("a", "a/b/c/d"),
        "onto its child": ("a", "a/b"),
        "onto its parent": ("a/b", "a"),
        "onto its grandparent": ("a/b/c", "a"),
        "onto itself": ("a", "a"),
        "another link to it": ("one", "two"),
        "dot": ("a/.", "x"),
        "dotdot": ("a/b/..", "x"),
        "to dot": ("other", "a/."),
        "with slash": ("one", "x/"),
        "the root of another tree": ("other/deep", "a/b/c/deep"),
    }
    found: dict[str, object] = {}
    for name, (source, target) in pairs.items():
        for flag in (EXCHANGE, NOREPLACE, 0):
            found[f"{name} {flag}"] = answer(renameat2, source, target, flag)
    found["links"] = os.stat("one").st_nlink
    found["tree"] = sorted(os.path.join(folder, name) for folder, names, _ in os.walk(".") for name in names)
    return found


def test_renames_among_relatives_answer_as_on_ext4(pair: Pair) -> None:
    assert pair.same(renames_among_relatives)["into itself 0"] == "EINVAL"


def test_whiteouts_are_left(pair: Pair) -> None:
    """What overlayfs asks of its upper layer."""
    (pair.mount / "a").touch()
    assert answer(renameat2, pair.mount / "a", pair.mount / "b", WHITEOUT) == answer(lambda: None)
    left = os.stat(pair.mount / "a")
    assert (left.st_mode, left.st_rdev) == (stat.S_IFCHR, 0)
    assert (pair.mount / "b").is_file()


def removed_directories() -> dict[str, object]:
    """What still works inside a directory that is gone."""
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    return {
        "create": answer(make_file, "x"),
        "mkdir": answer(os.mkdir, "x"),
        "symlink": answer(os.symlink, "x", "x"),
        "list": answer(os.listdir, "."),
        "links": os.stat(".").st_nlink,
        "chmod": answer(os.chmod, ".", 0o700),
    }


def test_a_removed_directory_answers_as_on_ext4(pair: Pair) -> None:
    assert pair.same(removed_directories)["create"] == "ENOENT"


def long_paths() -> dict[str, object]:
    """Deeper than PATH_MAX step by step, where each step is short enough."""
    top = os.open(".", os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250)
        os.chdir("d" * 250)
    found: dict[str, object] = {"deep file": answer(make_file, "f"), "listed": os.listdir(".")}
    os.fchdir(top)
    whole = "/".join(["d" * 250] * 20)
    found["too long at once"] = answer(os.stat, whole)
    return found


def test_trees_deeper_than_path_max_work_step_by_step(pair: Pair) -> None:
    assert pair.same(long_paths) == {"deep file": None, "listed": ["f"], "too long at once": "ENAMETOOLONG"}


def long_targets() -> list[object]:
    """Symlinks near PATH_MAX, and chains near the limit of 40."""
    found: list[object] = [answer(os.symlink, "t" * length, f"{length}") for length in (1, 4094, 4095, 4096)]
    found.append(len(os.readlink("4095")) if os.path.islink("4095") else None)
    make_file("0-")
    for number in range(1, 45):
        os.symlink(f"{number - 1}-", f"{number}-")
    found += [answer(os.path.getsize, f"{number}-") for number in (39, 40, 41, 44)]
    return found


def test_long_symlinks_and_chains_answer_as_on_ext4(pair: Pair) -> None:
    assert pair.same(long_targets)[-1] == "ELOOP"
