"""Packages: a wheel and a source distribution for pip, and the life of the Debian package in a fresh Debian tree."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import effort
from tests.kit.booted import PACKAGES, booted
from tests.kit.chromium import chromium
from tests.kit.debian import debian_tree, done, package, run_in
from tests.kit.newcomer import walk
from tests.system.namespaces import PROJECT

UNITS = PROJECT / "tests/system/units.sh"
COMMIT = ("git", "-c", f"safe.directory={PROJECT}", "describe", "--always", "--dirty", "--abbrev=12")


def by_pip(home: Path) -> None:
    """What pip installs from the wheel, and from the source distribution, is the command, and says of which commit."""
    done("scripts/wheel", home / "dist")
    for kind in ("*.whl", "*.tar.gz"):
        [file] = (home / "dist").glob(kind)
        target = home / kind.strip("*.")
        # Its libraries are those of the tests: that pip can fetch them is shown by whoever set this clone up.
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        done(*pip, "--no-deps", "--target", target, file)
        told = done(target / "bin/blocksync", "--version", PYTHONPATH=str(target))
        assert told == f"blocksync {version()} (build {done(*COMMIT).strip()})\n"


def by_pipx(home: Path) -> None:
    """From nothing, as the guide says it: with the libraries that the index has now."""
    done("scripts/wheel", home / "dist")
    done(sys.executable, "-m", "venv", home / "own")
    done(home / "own/bin/pip", "install", "-q", "--disable-pip-version-check", "pipx")
    for kind in ("*.whl", "*.tar.gz"):
        [file] = (home / "dist").glob(kind)
        place = home / kind.strip("*.")
        done(home / "own/bin/pipx", "install", file, PIPX_HOME=str(place), PIPX_BIN_DIR=str(place / "bin"))
        command = place / "bin/blocksync"
        assert done(command, "--version") == f"blocksync {version()} (build {done(*COMMIT).strip()})\n"
        done(command, "init", home / f"volume-{place.name}")
        assert (
            "nothing is linked"
            in subprocess.run(
                [command, "status"], env={"HOME": str(home)}, capture_output=True, text=True, check=True
            ).stderr
        )


def version() -> str:
    """As setup.cfg has it."""
    line = next(line for line in (PROJECT / "setup.cfg").read_text().splitlines() if line.startswith("version = "))
    return line.removeprefix("version = ")


def debian_package(home: Path) -> None:
    """Installed, used, upgraded, removed and purged, as root, by apt: nothing is cut off while it is mounted."""
    deb = package()
    [newer] = relabelled(deb, home, "+later")
    tree = debian_tree(home / "tree")
    for file, name in ((deb, "now.deb"), (newer, "later.deb")):
        (tree / name).write_bytes(file.read_bytes())
    told = run_in(tree, _LIFE)
    assert told.endswith("all of it\n")
    assert f"blocksync {version()} (build " in told


def under_systemd(home: Path) -> None:
    """Each unit under a real systemd, in a guest: it starts, with the rights that it says and no others, and works."""
    deb = package()
    tree = debian_tree(home / "tree", *PACKAGES)
    for file, name in zip(relabelled(deb, home, "", "+later"), ("now.deb", "later.deb"), strict=True):
        (tree / name).write_bytes(file.read_bytes())
    run_in(tree, "dpkg --install /now.deb >/dev/null; useradd --create-home ann")
    assert booted(tree, UNITS.read_text(), home).endswith("all of it\n")


def relabelled(deb: Path, home: Path, *suffixes: str) -> list[Path]:
    """The same package with other versions, not compressed."""
    done("dpkg-deb", "-R", deb, home / "unpacked")
    control, made = home / "unpacked/DEBIAN/control", []
    text = control.read_text()
    for suffix in suffixes:
        control.write_text(text.replace(f"Version: {version()}", f"Version: {version()}{suffix}"))
        made.append(home / f"relabelled{suffix}.deb")
        done("dpkg-deb", "-Zxz", "-z0", "--root-owner-group", "--build", home / "unpacked", made[-1])
    return made


def in_a_container(home: Path) -> None:
    """The steps of packaging/Containerfile, one by one, in a Debian tree whose Python stands for the image's.

    It shows that the commands do what they are there for: not that an engine builds the image, nor what its base has.
    """
    done("scripts/wheel", home / "dist")
    tree = debian_tree(home / "tree", "python3-pip")
    steps = instructions((PROJECT / "packaging/Containerfile").read_text())
    for file in (home / "dist").glob("*.whl"):
        assert ["COPY", "*.whl /tmp/"] in steps
        (tree / "tmp" / file.name).write_bytes(file.read_bytes())
    pip = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT", "REQUESTS_CA"))}
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
        if name in pip:
            (tree / "authorities").write_bytes(Path(pip[name]).read_bytes())
            pip[name] = "/authorities"
    if Path("/etc/pip.conf").exists():
        (tree / "etc/pip.conf").write_bytes(Path("/etc/pip.conf").read_bytes())
    settings = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in pip.items())
    runs = [rest for word, rest in steps if word == "RUN"]
    run_in(tree, "\n".join([settings, "export PIP_BREAK_SYSTEM_PACKAGES=1", *runs]))

    words = dict(steps)
    user = words["USER"]
    health = shlex.join(json.loads(words["HEALTHCHECK"].removeprefix("CMD ")))
    served = shlex.join(json.loads(words["ENTRYPOINT"]) + json.loads(words["CMD"]))
    as_user = f"setpriv --reuid={user} --regid={user} --clear-groups"
    life = f"""
        {as_user} {served} >/started 2>&1 & server=$!
        tail -n +1 -f /started | grep -q -m 1 'listening on'
        {as_user} {health}
        {as_user} blocksync token list {words["VOLUME"]} | grep -q default
        kill -s {words["STOPSIGNAL"].removeprefix("SIG")} $server
        wait $server
        stat -c '%a %U' {words["VOLUME"]}
    """
    assert run_in(tree, life, "--net").endswith(f"700 {user}\n")


def instructions(text: str) -> list[list[str]]:
    """Of a Containerfile: word and rest of each, lines that go on joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in lines.splitlines() if line.strip()]


_LIFE = """
refused() { if "$@" >/refused 2>&1; then echo "this should have failed: $*" >&2; exit 1; fi; cat /refused; }
apt-get -qq update
apt-get -qq install -y --no-install-recommends /now.deb >/dev/null
blocksync --version
man() { zcat "/usr/share/man/man$1/$2.$1.gz"; }
man 1 blocksync-link | grep -q reconcile
man 8 mount.fuse.blocksync | grep -q fstab
for unit in blocksync-serve.service blocksync-mount@.service blocksync-watch@.service; do
    grep -q /usr/bin/blocksync "/usr/lib/systemd/system/$unit"
done
test -s /usr/share/bash-completion/completions/blocksync
test -s /usr/share/fish/vendor_completions.d/blocksync.fish
apt-get -qq install -y --no-install-recommends zsh >/dev/null
zsh -fc 'autoload -U compinit; compinit -u -D; print $_comps[blocksync]' | grep -qx _blocksync

blocksync init /srv/volume
mkdir /srv/images
mount -t fuse.blocksync /srv/volume /srv/images
head -c 3000000 /dev/urandom >/srv/images/disk
sha256sum </srv/images/disk >/sum

refused apt-get -qq install -y /later.deb | grep /srv/images
blocksync stats /srv/images >/dev/null
refused dpkg --remove blocksync | grep /srv/images
blocksync umount /srv/images
apt-get -qq -f install -y >/dev/null
apt-get -qq install -y --no-install-recommends /later.deb >/dev/null
dpkg-query -W -f '${Version}\\n' blocksync | grep -q later
blocksync mount /srv/volume /srv/images
sha256sum </srv/images/disk | cmp - /sum
blocksync umount /srv/images

dpkg --remove blocksync >/dev/null
refused test -e /usr/bin/blocksync
dpkg --purge blocksync >/dev/null
find / -xdev -path /proc -prune -o -iname '*blocksync*' -print | grep -v '^/srv/' >/left || true
cat /left
test ! -s /left
test -e /srv/volume/volume.toml
echo all of it
"""


def newcomer(home: Path) -> None:
    """From the package on a fresh tree to a conflict that is settled on the page, in a browser."""
    with chromium() as browser:
        told = walk(home, browser, lambda _seen, _step: None)
    assert f"blocksync {version()} (build " in told["install"]
    assert all(told.values())


def a_release(home: Path) -> None:
    """By its one command, in a fresh clone: the files with their sums, and the tag of what they were built of."""
    clone, later = home / "clone", "91.2.3"
    git = ("git", "-c", f"safe.directory={PROJECT}/.git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", clone)
    done(*git[:3], "clone", "-q", PROJECT, clone)
    for name, before, after in (
        ("setup.cfg", f"\nversion = {version()}\n", f"\nversion = {later}\n"),
        ("CHANGELOG.md", "\n## Unreleased\n", f"\n## Unreleased\n\n## {later}\n"),
    ):
        text = (clone / name).read_text()
        assert before in text
        (clone / name).write_text(text.replace(before, after, 1))
    done(*git, "commit", "-qam", "a release")
    done(clone / "scripts/release", later, GIT_COMMITTER_NAME="t", GIT_COMMITTER_EMAIL="t@t")
    made = clone / "build/release"
    done("sh", "-c", f"cd {shlex.quote(str(made))} && sha256sum --check --strict SHA256SUMS")
    names = {f"blocksync-{later}-py3-none-any.whl", f"blocksync-{later}.tar.gz", f"blocksync_{later}_amd64.deb"}
    assert {file.name for file in made.iterdir()} == {*names, "SHA256SUMS"}
    assert done("dpkg-deb", "--field", made / f"blocksync_{later}_amd64.deb", "Version") == f"{later}\n"
    assert done(*git, "rev-parse", f"v{later}^{{commit}}") == done(*git, "rev-parse", "HEAD")


KINDS: tuple[Callable[[Path], None], ...] = (
    by_pip,
    by_pipx,
    debian_package,
    in_a_container,
    newcomer,
    a_release,
    under_systemd,
)


@pytest.mark.parametrize("kind", effort.first("packages", KINDS), ids=lambda kind: kind.__name__)
def test_a_package_installs_and_works(kind: Callable[[Path], None], tmp_path: Path) -> None:
    kind(tmp_path)
