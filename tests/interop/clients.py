"""The clients of others, in a private folder: kamaki under Python 2.7, and python-swiftclient.

Nothing is installed on the system. Python 2.7 is Debian's of two releases ago: its packages come from the mirror that
apt uses, are checked up to the archive's signing key, and are unpacked. kamaki and swiftclient come through pip.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SUITE: Final = "bullseye"
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES: Final = (
    "python2.7",
    "python2.7-minimal",
    "libpython2.7-stdlib",
    "libpython2.7-minimal",
    "libssl1.1",
    "libffi7",
)
PIP: Final = ("pip==20.3.4", "setuptools==44.1.1", "wheel==0.37.1")  # the last that know Python 2.7
KAMAKI: Final = "kamaki==0.16"
SWIFTCLIENT: Final = "python-swiftclient==4.11.0"
OPENSTACKSDK: Final = ("openstacksdk==4.22.0", SWIFTCLIENT)  # the latter has its way to log in

_DONE: Final = "complete"
_TIMEOUT_S: Final = 120


class MissingClientError(Exception):
    """A client can't be had here; the message says why."""


class Program:
    """A command with the environment it needs."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.command = list(command)
        self.environment = dict(environment)


def kamaki(folder: Path) -> Program:
    """kamaki 0.16 under Python 2.7, made in a folder if it is not there.

    Raises:
        MissingClientError: No mirror, no package, or pip failed.
    """
    folder = folder.resolve()
    root, site = folder / "python27", folder / "kamaki"
    python = root / "usr/bin/python2.7"
    libraries = os.pathsep.join(str(root / part / f"{_machine()}-linux-gnu") for part in ("usr/lib", "lib"))
    environment = {"LD_LIBRARY_PATH": libraries, "PYTHONHOME": str(root / "usr"), "PYTHONDONTWRITEBYTECODE": "1"}
    with_pip = {**environment, "PYTHONPATH": str(folder / "pip")}
    _once(root, lambda: _unpack_python(root))
    _once(folder / "pip", lambda: _unpack_pip(folder / "pip"))
    _once(site, lambda: _run([str(python), "-m", "pip", "install", *_QUIET, "--target", str(site), KAMAKI], with_pip))
    script = "import sys; from kamaki.cli import run_one_cmd; sys.argv[0] = 'kamaki'; sys.exit(run_one_cmd())"
    return Program([str(python), "-c", script], {**environment, "PYTHONPATH": str(site)})


def swiftclient(folder: Path) -> Program:
    """python-swiftclient's `swift`, made in a folder if it is not there.

    Raises:
        MissingClientError: pip failed.
    """
    site = folder.resolve() / "swiftclient"
    install = [sys.executable, "-m", "pip", "install", *_QUIET, "--target", str(site), SWIFTCLIENT]
    _once(site, lambda: _run(install, {}))
    script = "import sys; from swiftclient.shell import main; sys.argv[0] = 'swift'; sys.exit(main())"
    return Program([sys.executable, "-c", script], {"PYTHONPATH": str(site)})


def openstacksdk(folder: Path) -> Program:
    """Python with openstacksdk, made in a folder if it is not there; the first argument is the program.

    Raises:
        MissingClientError: pip failed.
    """
    site = folder.resolve() / "openstacksdk"
    _once(
        site, lambda: _run([sys.executable, "-m", "pip", "install", *_QUIET, "--target", str(site), *OPENSTACKSDK], {})
    )
    return Program([sys.executable, "-W", "ignore", "-c"], {"PYTHONPATH": str(site)})


def rclone() -> Program:
    """The system's rclone.

    Raises:
        MissingClientError: It is not installed.
    """
    found = shutil.which("rclone")
    if found is None:
        raise MissingClientError("rclone is not installed")
    return Program([found], {})


_QUIET: Final = ("--quiet", "--disable-pip-version-check", "--no-warn-script-location")


def _once(folder: Path, make: object) -> None:
    """Make a folder's contents, all of them or none."""
    if (folder / _DONE).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    assert callable(make)
    make()
    (folder / _DONE).touch()


def _unpack_python(root: Path) -> None:
    mirror = _mirror()
    release = _verified_release(f"{mirror}dists/{SUITE}/InRelease")
    listed = f"main/binary-{_output(['dpkg', '--print-architecture'])}/Packages.xz"
    index = _fetch(f"{mirror}dists/{SUITE}/{listed}", _listed_digest(release, listed))
    for name in PACKAGES:
        path, digest = _package(lzma.decompress(index).decode(), name)
        archive = root / f"{name}.deb"
        archive.write_bytes(_fetch(mirror + path, digest))
        _run(["dpkg-deb", "-x", str(archive), str(root)], {})
        archive.unlink()


def _unpack_pip(folder: Path) -> None:
    wheels = folder / "wheels"
    any_python = ("--python-version", "2.7", "--implementation", "py", "--abi", "none", "--only-binary=:all:")
    _run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *any_python, "-d", str(wheels), *PIP], {})
    for wheel in wheels.iterdir():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


def _mirror() -> str:
    """The mirror that apt has for this system's own packages, with a slash at the end."""
    wanted = ("Created-By: Packages", "Component: main")
    lines = _output(["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", *wanted]).splitlines()
    for line in lines:
        codename, _, uri = line.partition(" ")
        if "-" not in codename:  # not bookworm-security and the like: they are other archives
            return uri.rstrip("/") + "/"
    raise MissingClientError("apt knows no mirror: /etc/apt/sources.list names none")


def _verified_release(url: str) -> str:
    """The archive's signed list of files, after a look at the signature."""
    signed = _fetch(url, None)
    checked = subprocess.run(
        ["gpgv", "--quiet", "--keyring", KEYRING, "--output", "-", "-"], input=signed, capture_output=True, check=False
    )
    if checked.returncode:
        raise MissingClientError(
            f"{url} is not signed by Debian's archive: {checked.stderr.decode(errors='replace').strip()}"
        )
    return checked.stdout.decode()


def _listed_digest(release: str, path: str) -> str:
    """A file's SHA-256 in a Release file."""
    lines = release.partition("\nSHA256:\n")[2].splitlines()
    return next(words[0] for line in lines if (words := line.split())[2:] == [path])


def _package(index: str, name: str) -> tuple[str, str]:
    """A package's path and SHA-256 in a Packages file."""
    for paragraph in index.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Package") == name:
            return fields["Filename"], fields["SHA256"]
    raise MissingClientError(f"{SUITE} has no package {name}")


def _fetch(url: str, digest: str | None) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as reply:
            found: bytes = reply.read()
    except OSError as error:
        raise MissingClientError(f"{url}: {error}") from None
    if digest not in {None, hashlib.sha256(found).hexdigest()}:
        raise MissingClientError(f"{url} is not what the archive's index lists")
    return found


def _machine() -> str:
    return _output(["uname", "-m"])


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingClientError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-600:]}")
