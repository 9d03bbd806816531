"""`make install` into a DESTDIR; what is there is used in a private mount namespace as if it were the machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from syncer.cli.commands import MODULES
from tests.system.namespaces import PROJECT, passed

FILES = {
    "usr/local/bin/blocksync",
    "usr/sbin/mount.fuse.blocksync",
    "usr/local/share/man/man1/blocksync.1",
    *(f"usr/local/share/man/man1/blocksync-{verb}.1" for verb in MODULES),
    "usr/local/share/man/man8/mount.fuse.blocksync.8",
    "usr/local/share/bash-completion/completions/blocksync",
    "usr/local/share/zsh/site-functions/_blocksync",
    "usr/local/share/fish/vendor_completions.d/blocksync.fish",
    "usr/local/lib/systemd/system/blocksync-mount@.service",
    "usr/local/lib/systemd/system/blocksync-passthrough.service",
    "usr/local/lib/systemd/system/blocksync-passthrough.socket",
    "usr/local/lib/systemd/system/blocksync-serve.service",
    "usr/local/lib/systemd/system/blocksync-watch@.service",
    "usr/local/lib/systemd/user/blocksync-watch.service",
}


def make(goal: str, destination: Path, **environment: str) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", goal, f"DESTDIR={destination}"],
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def installed_files(destination: Path) -> set[str]:
    return {
        str(path.relative_to(destination))
        for path in destination.rglob("*")
        if (path.is_symlink() or path.is_file()) and "lib/blocksync/" not in str(path)
    }


@pytest.fixture(scope="module")
def destination(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("destination")
    make("install", path, PATH=f"{without_compilers(tmp_path_factory)}:{os.environ['PATH']}")
    return path


COMPILERS = ("gcc", "cc", "c99", "x86_64-linux-gnu-gcc", "clang", "pkg-config", "pkgconf")


def without_compilers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH: who calls a compiler, or asks for libfuse, fails."""
    path = tmp_path_factory.mktemp("bin")
    for name in COMPILERS:
        (path / name).symlink_to("/bin/false")
    return path


def test_pyfuse3_is_an_extra_and_who_asks_for_it_is_told_how_to_get_it(destination: Path) -> None:
    assert not list((destination / "usr/local/lib/blocksync").rglob("*pyfuse3*.so"))
    said = passed(
        """
        blocksync init /mnt/v
        refused blocksync mount /mnt/v /mnt/m --frontend pyfuse3 2>&1
        blocksync mount /mnt/v /mnt/m
        blocksync stats /mnt/m --json
        blocksync umount /mnt/m
        blocksync doctor 2>&1 | grep FUSE
        """,
        INSTALLED=str(destination),
    )
    assert "pyfuse3 is not installed, which --frontend pyfuse3 needs" in said
    assert "make install EXTRAS=fuse" in said
    assert '"frontend":"kernel"' in said
    assert "volumes can be mounted" in said


NOTES_ITS_ARGUMENTS = """#!/bin/sh
echo "$(basename "$0") $*" >>"$ASKED"
case $* in *venv*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;; esac
"""


def test_the_demo_asks_for_no_compiler_no_libfuse_and_no_extra(tmp_path: Path) -> None:
    """What it installs is what `make install` does in these tests, where every compiler fails."""
    clone = tmp_path / "clone"
    shutil.copytree(PROJECT / "scripts", clone / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "setup.cfg"):
        shutil.copy(PROJECT / name, clone)
    for path in (clone / "scripts/packages", tmp_path / "python"):
        path.write_text(NOTES_ITS_ARGUMENTS)
        path.chmod(0o755)
    asked = tmp_path / "asked"
    environment = {**os.environ, "ASKED": str(asked), "PYTHON": str(tmp_path / "python")}
    subprocess.run(["make", "bootstrap"], cwd=clone, env=environment, check=True)
    packages, *_, pip = asked.read_text().splitlines()
    assert packages.startswith("packages python3 ")
    assert not {*COMPILERS, "python3-dev", "libc6-dev", "libfuse3-dev"} & set(packages.split())
    assert pip.endswith("-c scripts/constraints.txt -e .")


def test_another_extra_is_refused_by_name(destination: Path) -> None:
    done = subprocess.run(
        [PROJECT / "scripts/install"], env={**os.environ, "EXTRAS": "fuze"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("install: EXTRAS=fuze: the extras are `fuse`, `opendal` and `sftp`")


def test_everything_has_its_place_and_nothing_knows_where_it_was_built(destination: Path) -> None:
    assert installed_files(destination) == FILES
    assert os.readlink(destination / "usr/local/bin/blocksync") == "/usr/local/lib/blocksync/bin/blocksync"
    for folder in ("usr/local/share", "usr/local/lib/systemd", "usr/local/lib/blocksync/bin"):
        found = subprocess.run(
            ["grep", "-rlF", str(destination), destination / folder], capture_output=True, check=False
        )
        assert found.stdout == b""


def test_a_second_install_changes_nothing(destination: Path) -> None:
    environment = destination / "usr/local/lib/blocksync"
    before = environment.stat().st_ino
    make("install", destination)
    assert environment.stat().st_ino == before
    assert installed_files(destination) == FILES


def test_what_is_installed_mounts_for_mount_as_root_and_as_user(destination: Path) -> None:
    shown = passed(
        """
        [ "$(command -v blocksync)" = /usr/local/bin/blocksync ]
        within_reach /usr/local "$INSTALLED/usr/local"
        blocksync init /mnt/v
        echo '/mnt/v /mnt/m fuse.blocksync defaults,nofail 0 0' >/mnt/fstab
        mount --fstab /mnt/fstab /mnt/m
        echo kept >/mnt/m/file
        pid=$(holder /mnt/v)
        umount /mnt/m
        gone $pid
        mount -t fuse.blocksync -o ro /mnt/v /mnt/m
        cat /mnt/m/file
        blocksync umount /mnt/m
        chown 65534:65534 /mnt/m
        as_nobody /usr/local/bin/blocksync init /mnt/w
        as_nobody /usr/local/bin/blocksync mount /mnt/w /mnt/m
        as_nobody /usr/local/bin/blocksync umount /mnt/m
        """,
        INSTALLED=str(destination),
    )
    assert shown == "kept\n"


def test_bash_completes_verbs_and_options(destination: Path) -> None:
    shown = passed(
        """
        source /usr/local/share/bash-completion/completions/blocksync
        complete -p blocksync
        COMP_WORDS=(blocksync um) COMP_CWORD=1
        _blocksync_completion blocksync
        echo "${COMPREPLY[@]}"
        COMP_WORDS=(blocksync mount --re) COMP_CWORD=2 COMPREPLY=()
        _blocksync_completion blocksync
        echo "${COMPREPLY[@]}"
        """,
        INSTALLED=str(destination),
    )
    assert shown.splitlines()[1:] == ["umount", "--read-only"]


def test_the_other_shells_get_their_completions(destination: Path) -> None:
    """Neither shell is needed for the tests: that the scripts ask the command is all that is looked at."""
    share = destination / "usr/local/share"
    assert "#compdef blocksync" in (share / "zsh/site-functions/_blocksync").read_text()
    assert "_BLOCKSYNC_COMPLETE=fish_complete" in (share / "fish/vendor_completions.d/blocksync.fish").read_text()


def test_systemd_accepts_the_units(destination: Path) -> None:
    passed(
        """
        cd /usr/local/lib/systemd/system
        for unit in blocksync-mount@images.service blocksync-serve.service blocksync-watch@daemon.service \\
            blocksync-passthrough.service blocksync-passthrough.socket
        do
            systemd-analyze verify --man=no --recursive-errors=no ./$unit 2>&1 | tee -a /mnt/said
        done
        refused test -s /mnt/said
        """,
        INSTALLED=str(destination),
    )


def settings_of(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and line[0] not in "#[")


def test_only_the_system_unit_of_watch_may_open_a_packet_socket_and_nothing_else(destination: Path) -> None:
    """The right belongs to one service. On the interpreter's file it would belong to every script of every user."""
    units = destination / "usr/local/lib/systemd"
    system = settings_of(units / "system/blocksync-watch@.service")
    user = settings_of(units / "user/blocksync-watch.service")
    assert system["User"] == "%i"
    assert system["AmbientCapabilities"] == system["CapabilityBoundingSet"] == "CAP_NET_RAW"
    assert "AF_PACKET" in system["RestrictAddressFamilies"]
    assert system["NoNewPrivileges"] == user["NoNewPrivileges"] == "yes"
    assert "AmbientCapabilities" not in user
    same = {"ExecStart", "Type", "Restart", "RestartPreventExitStatus", "WatchdogSec", "TimeoutStopSec", "UMask"}
    assert {key: system[key] for key in same} == {key: user[key] for key in same}


def test_no_installed_file_has_a_capability(destination: Path) -> None:
    files = [path for path in destination.rglob("*") if path.is_file()]
    assert [path for path in files if "security.capability" in os.listxattr(path)] == []


@pytest.mark.parametrize(
    "page", ["man1/blocksync.1", "man1/blocksync-link.1", "man1/blocksync-snapshot.1", "man8/mount.fuse.blocksync.8"]
)
def test_man_pages_are_formatted_without_a_warning(destination: Path, page: str) -> None:
    path = destination / "usr/local/share/man" / page
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-cbou", "-ww", path], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    for words in ("SYNOPSIS", "EXIT STATUS", "SEE ALSO"):
        assert words in done.stdout


def test_uninstall_takes_away_what_install_has_brought_and_nothing_else(destination: Path) -> None:
    """The last test of the module: it ends what the others look at."""
    (destination / "usr/local/bin/other").write_text("somebody else's")
    make("uninstall", destination)
    assert {str(path.relative_to(destination)) for path in destination.rglob("*") if not path.is_dir()} == {
        "usr/local/bin/other"
    }
    make("uninstall", destination)
