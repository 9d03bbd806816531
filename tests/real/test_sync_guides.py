"""The commands of the guides and of the README work as they stand there.

Each page in one shell, and all pages one after the other in one new user's home, which each leaves as it found it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit import swift as swifts
from tests.kit.ports import free_port
from tests.real.guest import PROJECT, SYSTEM_PATH, make_disk
from tests.real.recipes import Home, blocks, commands, environment_of, in_one_shell

GUIDES = ("first-sync", "conflicts", "moving-a-root", "part-of-a-container", "repository", "two-laptops")
"""Those without a guest. Any order must do: what follows the README here would trip over what it left."""

EXPECTED = {
    "first-sync": ("unique 40 MiB", "blocks 640", "dedup ratio 2.00", "listening on", "golden.img web.img"),
    "conflicts": (
        "exit code 4",
        "it is a conflict",
        "1 conflict copy",
        "written on the desktop",
        "no conflict copies",
    ),
    "moving-a-root": ("exit code 18", "linked ", "ok    "),
    "part-of-a-container": ("two.jpg", "three.jpg", "one.jpg", "one.txt", "four"),
    "repository": ("recovery key: ", "nothing is damaged or missing", "forgotten: ", "notes more", "0 damage"),
    "two-laptops": ("exit code 16", "actions", "2 roots: ", "ok    "),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One home for all pages; nothing but the program is in it."""
    path = tmp_path_factory.mktemp("home")
    (path / "bin").mkdir()
    (path / "bin/blocksync").symlink_to(Path(sys.executable).with_name("blocksync"))
    yield path
    for file in path.glob("*.pid"):  # of a page that broke off
        try:
            os.kill(int(file.read_text()), signal.SIGTERM)
        except (ProcessLookupError, ValueError):
            continue
    for mounted in ("images", "images2", "try/images"):
        if os.path.ismount(path / mounted):
            subprocess.run([path / "bin/blocksync", "umount", path / mounted], check=False)


def visible(home: Path) -> set[str]:
    """What a user sees of a home; state and data folders of the program are its own."""
    return {path.name for path in home.iterdir()} - {"bin", ".local"}


def linked(home: Path) -> list[Path]:
    """The roots that are linked there."""
    return list(home.glob(".local/state/blocksync/roots/*/root.json"))


@pytest.mark.parametrize("name", GUIDES)
def test_every_command_of_the_guide_works(fuse: None, name: str, home: Path) -> None:
    guide = (PROJECT / "docs/guide" / f"{name}.md").read_text().replace(":8800", f":{free_port()}")
    environment = environment_of(home, f"{home}/bin:{SYSTEM_PATH}")
    took = in_one_shell(commands(guide), home, environment, home)
    assert len(took) > 15
    said = " ".join(" ".join(each.output for each in took).split())
    for expected in EXPECTED[name]:
        assert " ".join(expected.split()) in said, expected
    assert visible(home) == set()
    assert linked(home) == []


def test_every_command_of_the_guide_to_swift_works_on_a_real_one(home: Path, tmp_path: Path) -> None:
    clouds = home / ".config/openstack/clouds.yaml"
    clouds.parent.mkdir(parents=True)
    guide = (PROJECT / "docs/guide/swift.md").read_text()
    try:
        with swifts.running(tmp_path) as swift:
            auth = f"{{auth_url: '{swift.url}/auth/v1.0', username: '{swifts.USER}', password: {swifts.KEY}}}"
            clouds.write_text(f"clouds:\n  home:\n    auth_type: v1password\n    auth: {auth}\n")
            took = in_one_shell(commands(guide), home, environment_of(home, f"{home}/bin:{SYSTEM_PATH}"), home)
    finally:
        shutil.rmtree(home / ".config")
    assert len(took) > 15
    said = " ".join(each.output for each in took)
    for expected in ("recovery key: ", "repository on Swift container images", "nothing is damaged or missing"):
        assert expected in said, expected
    assert visible(home) == set()
    assert linked(home) == []


def test_every_command_of_the_guide_to_vm_images_works(fuse: None, home: Path, tmp_path: Path) -> None:
    golden = tmp_path / "made.img"
    make_disk(golden, tmp_path)
    guide = (PROJECT / "docs/guide/vm-images.md").read_text().replace(":8800", f":{free_port()}")
    with closing(Home(home, golden)) as made:
        assert len(made.take(*commands(guide))) > 40
    for made_before in ("golden.img", "old.qcow2", "initramfs"):
        (home / made_before).unlink()
    assert visible(home) == set()
    assert linked(home) == []


def test_the_block_of_the_readme_works_when_pasted_into_a_bare_shell(fuse: None, tmp_path: Path) -> None:
    """One shell, an empty home, nothing made before: in the clone, after `make demo`, as somebody sits there."""
    section = (PROJECT / "README.md").read_text().partition("## Sixty seconds")[2].partition("\n## ")[0]
    (block, away) = blocks(section)
    port = free_port()
    pasted = "".join(part.replace(":8800", f":{port}") for part in (block, away))
    environment = {"HOME": str(tmp_path), "PATH": SYSTEM_PATH, "TERM": "dumb"}
    trap = "trap 'echo \"failed: $BASH_COMMAND\"' ERR\n"
    try:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc"],
            cwd=PROJECT,
            env=environment,
            input=trap + pasted,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    finally:
        if os.path.ismount(tmp_path / "try/images"):
            subprocess.run([PROJECT / ".venv/bin/blocksync", "umount", tmp_path / "try/images"], check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "failed:" not in told, told
    assert re.search(r"dedup ratio +2\.00", told), told
    assert re.search(r"pulled +2\n", told), told
    assert visible(tmp_path) == set()
