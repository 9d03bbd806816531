"""Make the pictures of the page for the guide: `python -m scripts.screens`, with what `make test-bootstrap` installs.

A server, roots and a daemon are made for it, and taken away again; what is seen is what they really do.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import expect

from tests.kit.chromium import NARROW, Visit, chromium, visit

BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")
PICTURES: Final = Path(__file__).parents[1] / "docs/guide/pictures"


class Scene:
    """A user with a few roots."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "BLOCKSYNC_PEERS": "off",
            "LC_ALL": "C.UTF-8",
        }

    def __call__(self, *arguments: str | Path, expect: int = 0) -> str:
        """Run a command."""
        done = subprocess.run(
            [BLOCKSYNC, *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
        """Have a server or a daemon run."""
        process = subprocess.Popen(
            [BLOCKSYNC, *arguments], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()

    def until(self, root: Path, phase: str) -> None:
        """Wait for a root."""
        with subprocess.Popen(
            [BLOCKSYNC, "status", root, "--follow", "--json"], env=self.environment, stdout=subprocess.PIPE, text=True
        ) as following:
            assert following.stdout is not None
            for line in following.stdout:
                if json.loads(line)["phase"] == phase:
                    break
            following.terminate()

    def link(self) -> str:
        """A link to the page."""
        return str(json.loads(self("ui", "--json", "--listen", "127.0.0.1:0"))["link"])


def make(scene: Scene, server: str) -> dict[str, Path]:
    """Roots and what is in them."""
    draw = random.Random(17)  # noqa: S311 - contents of files
    roots = {name: scene.home / name for name in ("images", "music", "notes", "photos")}
    for name, root in roots.items():
        root.mkdir()
        url = f"pithos+{server}/v1/default/{name}"
        scene("link", root, url, "--token-file", scene.home / "server/token")
    for number in range(36):
        (roots["photos"] / f"IMG_{number:04}.jpg").write_bytes(draw.randbytes(40_000))
    (roots["images"] / "golden.img").write_bytes(draw.randbytes(8 << 20))
    (roots["music"] / os.fsdecode(b"caf\xe9.flac")).write_bytes(draw.randbytes(100_000))
    (roots["music"] / "overture.flac").write_bytes(draw.randbytes(300_000))
    (roots["notes"] / "todo.txt").write_text("write more tests\n")
    return roots


def conflicts(scene: Scene, seen: Visit, server: str) -> None:
    """Two devices that both changed two files."""
    desk, laptop = scene.home / "desk", scene.home / "laptop"
    for root in (desk, laptop):
        root.mkdir()
        url = f"pithos+{server}/v1/default/work"
        scene("link", root, url, "--token-file", scene.home / "server/token")
        scene("pause", root)
    draw = random.Random(17)  # noqa: S311 - contents of files
    disk = bytearray(draw.randbytes(3 << 20))
    (desk / "disk.img").write_bytes(disk)
    (desk / "report.txt").write_text("written by both\n")
    for root in (desk, laptop):
        scene("reconcile", root)
    for root, at in ((desk, 400_000), (laptop, 2_000_000)):
        (root / "report.txt").write_text(f"written at the {root.name}\n")
        (root / "disk.img").write_bytes(disk[:at] + draw.randbytes(300_000) + disk[at + 300_000 :])
    scene("reconcile", desk)
    scene("reconcile", laptop, expect=4)
    seen.page.get_by_role("navigation").get_by_role("link", name="Conflicts").click()
    seen.page.locator("main").get_by_role("link", name="laptop").click()
    expect(seen.page.get_by_text("they differ").first).to_be_visible()
    take(seen, "conflicts")
    seen.page.get_by_role("link", name="Compare").first.click()
    expect(seen.page.get_by_text("Each piece of the picture")).to_be_visible()
    take(seen, "compare")


def take(seen: Visit, name: str) -> None:
    """Keep what is seen."""
    PICTURES.mkdir(exist_ok=True)
    seen.page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


def main() -> int:
    """Make them all."""
    home = Path(tempfile.mkdtemp(prefix="blocksync-"))
    scene = Scene(home)
    try:
        with scene.running("serve", home / "server", "--listen", "127.0.0.1:0") as server:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "listening on" in line).split()[-1]
            roots = make(scene, address)
            with scene.running("watch"), chromium() as browser:
                for name, root in roots.items():
                    scene.until(root, "retrying" if name == "music" else "idle")
                for number in range(30):
                    (roots["photos"] / f"IMG_{number:04}.jpg").unlink()
                scene("pause", roots["notes"])
                scene.until(roots["photos"], "consent")
                with visit(browser, scene.link()) as seen:
                    expect(seen.page.get_by_text("Waits for you", exact=True)).to_be_visible()
                    take(seen, "roots")
                    seen.page.get_by_role("link", name="See what it would delete").click()
                    expect(seen.page.get_by_text("It waits, because")).to_be_visible()
                    take(seen, "plan")
                    seen.go("/")
                    seen.page.get_by_role("link", name="music").click()
                    expect(seen.page.get_by_text("What waits, and why")).to_be_visible()
                    take(seen, "root")
                    conflicts(scene, seen, address)
                with visit(browser, scene.link(), size=NARROW, dark=True) as seen:
                    expect(seen.page.get_by_text("Waits for you", exact=True)).to_be_visible()
                    take(seen, "narrow")
    finally:
        shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
