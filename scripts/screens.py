"""Make the pictures of the page for the guide: `python -m scripts.screens`, with what `make test-bootstrap` installs.

As root: neighbours need a network of their own. A server, roots and a daemon are made for it, and taken away again;
what is seen is what they really do.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, expect

from tests.kit.chromium import NARROW, WIDE, Visit, browser_on, chromium, visit
from tests.kit.gate import Gate, gate_to
from tests.kit.netns import Lan
from tests.kit.program import Machine, Site, is_there

BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")
PICTURES: Final = Path(__file__).parents[1] / "docs/guide/pictures"
TOKENS: Final = "one-token me 64MiB\nanother-token anna 20MiB\n"
"""Accounts of the server, and what each may use."""
_ALONE: Final = "--no-mounts"
GIVES: Final = re.compile(r"/s.*MiB.*yes", re.DOTALL)
"""A row of a neighbour from which blocks come."""


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

    def at(self, device: str, *arguments: str | Path, expect: int = 0) -> None:
        """Run a command on a machine that is called so."""
        named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', device, BLOCKSYNC, *arguments)
        done = subprocess.run(named, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == expect, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"

    def token_of(self, account: str) -> Path:
        """A file with the token of one of the server's accounts."""
        path = self.home / f"token of {account}"
        path.write_text(next(line for line in TOKENS.splitlines() if line.split()[1] == account))
        path.chmod(0o600)
        return path

    def link(self) -> str:
        """A link to the page."""
        return str(json.loads(self("ui", "--json", "--listen", "127.0.0.1:0"))["link"])


def make(scene: Scene, server: str) -> dict[str, Path]:
    """Roots and what is in them."""
    draw = random.Random(17)  # noqa: S311 - contents of files
    roots = {name: scene.home / name for name in ("images", "music", "notes", "photos")}
    for name, root in roots.items():
        root.mkdir()
        scene("link", root, f"pithos+{server}/v1/me/{name}", "--token-file", scene.token_of("me"))
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
        scene("link", root, f"pithos+{server}/v1/me/work", "--token-file", scene.token_of("me"))
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
    scene.at("desk", "reconcile", desk)
    scene.at("laptop", "reconcile", laptop, expect=4)
    seen.page.get_by_role("navigation").get_by_role("link", name="Conflicts").click()
    expect(seen.page.get_by_text("2 conflicts", exact=True)).to_be_visible()
    take(seen.page, "choose")
    seen.page.locator("main").get_by_role("link", name="laptop").click()
    expect(seen.page.get_by_text("they differ").first).to_be_visible()
    take(seen.page, "conflicts")
    seen.page.get_by_role("link", name="Compare").first.click()
    expect(seen.page.get_by_text("Each piece of the picture")).to_be_visible()
    take(seen.page, "compare")


MIB: Final = 1 << 20
BLOCK: Final = 64 << 10


class Disks:
    """A volume with the disks of a few machines, made from one: what is in them is noise, what they share is real."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._draw = random.Random(17)  # noqa: S311 - contents of files
        self.volume, self.path = scene.home / "volume", scene.home / "vms"
        self.path.mkdir()
        scene("init", self.volume)
        scene("mount", self.volume, self.path)

    def fill(self) -> None:
        """Step by step. What each step has left is noted as if it had taken hours, which is what a curve is about."""
        golden = self.path / "golden.img"
        with golden.open("wb") as file:
            file.truncate(96 * MIB)
        self._write(golden, 0, 8 * MIB)
        for at in range(8, 60, 4):
            self._write(golden, at * MIB, self._draw.randrange(MIB, 4 * MIB))
        self._note(6)
        for name, hours in (("web", 5), ("mail", 4), ("database", 3)):
            self._scene("clone", golden, self.path / f"{name}.img")
            self._note(hours)
        for _ in range(14):
            self._write(self.path / "web.img", self._draw.randrange(64, 88) * MIB, 5 * BLOCK)
            self._write(self.path / "web.img", self._draw.randrange(0, 60) * MIB, 9 * BLOCK)
        self._write(self.path / "database.img", 60 * MIB, 30 * MIB)
        self._note(2)
        with (self.path / "database.img").open("rb") as file, (self.path / "web.img").open("r+b") as other:
            file.seek(64 * MIB)
            other.seek(66 * MIB)
            other.write(file.read(6 * MIB))  # what both have downloaded
        self._scene("snapshot", self.path, "before-the-upgrade")
        self._scene("flush", self.path)

    def write_on(self) -> None:
        """What is written now is staged: it is sealed when it has been quiet for half a minute."""
        for at in (4, 40, 90):
            self._write(self.path / "web.img", at * MIB, 40 * BLOCK)

    def _write(self, path: Path, at: int, size: int) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(self._draw.randbytes(size))
            file.flush()
            os.fsync(file.fileno())

    def _note(self, hours: int) -> None:
        self._scene("flush", self.path)
        told = json.loads(self._scene("stats", self.path, "--json"))
        figures = {key: told[key] for key in ("logical_bytes", "unique_bytes", "stored_bytes")}
        uuid = tomllib.loads((self.volume / "volume.toml").read_text())["uuid"]
        history = self._scene.home / f".local/state/blocksync/volumes/{uuid}.jsonl"
        history.parent.mkdir(parents=True, exist_ok=True)
        with history.open("a") as file:
            file.write(json.dumps({"at_s": time.time() - 3600 * hours, **figures}) + "\n")


def volumes(scene: Scene, seen: Visit) -> None:
    """What a volume holds, and the map of a disk."""
    disks = Disks(scene)
    try:
        disks.fill()
        seen.page.get_by_role("navigation").get_by_role("link", name="Volumes").click()
        expect(seen.page.locator("main").get_by_role("link", name="vms")).to_be_visible()
        take(seen.page, "volumes")
        seen.page.locator("main").get_by_role("link", name="vms").click()
        expect(seen.page.get_by_role("heading", name="Which files share most")).to_be_visible()
        take(seen.page, "volume", whole=True)
        disks.write_on()
        seen.page.locator("main").get_by_role("link", name="web.img").click()
        expect(seen.page.get_by_role("heading", name="Shared with")).to_be_visible()
        expect(seen.page.get_by_text("staged, not sealed yet")).to_be_visible()
        take(seen.page, "map")
    finally:
        scene("umount", disks.path)


def trash(seen: Visit, root: Path) -> None:
    """What a root has thrown away."""
    seen.go("/trash")
    seen.page.locator("main").get_by_role("link", name=root.name).click()
    expect(seen.page.get_by_role("button", name="Restore").first).to_be_visible()
    take(seen.page, "trash")


def ignored(scene: Scene, seen: Visit, root: Path) -> None:
    """Patterns of both kinds, what they ignore, and a name that is refused."""
    (root / "drafts").mkdir()
    (root / "drafts/a.tmp").write_text("not to be synced\n")
    (root / ".blocksyncignore").write_text("*.part\n")
    (root / "opera.flac.part").write_text("not whole yet\n")
    scene("ignore", root, "add", "*.tmp")
    seen.go("/")
    seen.page.locator("main").get_by_role("link", name=root.name).first.click()
    seen.page.locator("main").get_by_role("link", name="Ignored").click()
    seen.page.get_by_label("A path below the root").fill("drafts/a.tmp")
    seen.page.get_by_role("button", name="Check").click()
    expect(seen.page.get_by_text("ignored (pattern")).to_be_visible()
    expect(seen.page.get_by_text("*.part (.blocksyncignore, line 1)")).to_be_visible()
    expect(seen.page.get_by_text("not UTF-8")).to_be_visible()
    take(seen.page, "ignored", whole=True)


def around(scene: Scene, seen: Visit, root: Path) -> None:
    """The server, and what is found of this computer: all is well, and a root's folder is away."""
    for page, heading in (("Server", "anna"), ("Doctor", "This computer")):
        seen.page.get_by_role("navigation").get_by_role("link", name=page).click()
        expect(seen.page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        take(seen.page, page.lower())
    away = root.rename(scene.home / "away")
    seen.page.get_by_role("link", name="Look again").click()
    expect(seen.page.get_by_text("Fails", exact=True)).to_be_visible()
    take(seen.page, "doctor-fails")
    away.rename(root)


def several_servers(scene: Scene, seen: Visit) -> None:
    """Beside the one of all other pictures a second one runs for a while."""
    serve = ("serve", scene.home / "archive", "--listen", "127.0.0.1:0", "--token-file", scene.home / "tokens")
    with scene.running(*serve) as server:
        assert server.stdout is not None
        next(line for line in server.stdout if "listening on" in line)
        seen.page.get_by_role("navigation").get_by_role("link", name="Server").click()
        expect(seen.page.get_by_role("link", name="archive")).to_be_visible()
        take(seen.page, "servers")


def doors(scene: Scene, seen: Visit, browser: Browser) -> None:
    """Who has no session, at the same address; then who has a link, before it goes on to the roots."""
    context = browser.new_context(viewport={"width": WIDE["width"], "height": WIDE["height"]}, color_scheme="light")
    page = context.new_page()
    page.goto(seen.page.url)
    expect(page.get_by_role("heading", name="This page is closed")).to_be_visible()
    take(page, "stranger")
    page.route("http://*/", lambda route: route.abort("aborted"))  # else it is gone at once
    page.goto(scene.link())
    expect(page.get_by_role("heading", name="You are in")).to_be_visible()
    take(page, "opened")
    context.close()


def syncing(scene: Scene, seen: Visit, server: str) -> None:
    """A root in the middle of a pull: the server stops there."""
    draw = random.Random(17)  # noqa: S311 - contents of files
    with gate_to(server) as gate:
        full, root = scene.home / "full", scene.home / "videos"
        for path, address in ((full, server), (root, gate.address)):
            path.mkdir()
            url, limit = f"pithos+{address}/v1/me/videos", ("--limit-down", "1MiB")
            scene("link", path, url, "--token-file", scene.token_of("me"), *limit)
            scene("pause", path)
        for number in range(40):
            (full / f"day {number:02}.mp4").write_bytes(draw.randbytes(256 << 10))
        scene("reconcile", full)
        scene("unlink", full)
        gate.hold(after_bytes=7 << 20)
        seen.go("/")
        seen.page.locator("main").get_by_role("link", name="videos").click()
        seen.page.get_by_role("button", name="Resume").click()
        gate.until_held()
        expect(seen.page.get_by_text(re.compile("about .* left$"))).to_be_visible()
        take(seen.page, "syncing")
        gate.open()
        scene.until(root, "idle")
        looking(seen, gate, root)
        scene("unlink", root)


def looking(seen: Visit, gate: Gate, root: Path) -> None:
    """A plan of a server that takes its time, one of a folder that is away, and a page that is none."""
    seen.go("/")
    seen.page.locator("main").get_by_role("link", name=root.name).click()
    gate.hold()
    seen.page.get_by_role("link", name="What would the next cycle do?").click()
    expect(seen.page.get_by_text("as soon as it is there")).to_be_visible()
    take(seen.page, "looking")
    gate.open()
    expect(seen.page.get_by_role("link", name="Look again")).to_be_visible()
    away = root.with_name("away")
    root.rename(away)
    seen.page.get_by_role("link", name="Look again").click()
    expect(seen.page.get_by_role("link", name="Try again")).to_be_visible()
    take(seen.page, "failed")
    away.rename(root)
    seen.go("/nothing")
    expect(seen.page.get_by_role("heading", name="Not found")).to_be_visible()
    take(seen.page, "missing")
    seen.complaints.clear()  # the browser says that it was not found, as it should


def servers(scene: Scene, server: str) -> None:
    """Somebody else has something there, too."""
    disks = scene.home / "disks"
    disks.mkdir()
    (disks / "backup.img").write_bytes(random.Random(17).randbytes(13 * MIB))  # noqa: S311 - contents of files
    scene("link", disks, f"pithos+{server}/v1/anna/disks", "--token-file", scene.token_of("anna"))
    scene("reconcile", disks)
    scene("unlink", disks)


@contextmanager
def neighbours(home: Path, browser: Browser, *crooked: str) -> Iterator[tuple[Machine, Machine, Visit]]:
    """On a network of its own a machine gets a disk, of which two neighbours have all; yields it, one, and its peers.

    Args:
        home: Of the machines.
        browser: Any.
        crooked: What is wrong with the second neighbour: see tests/kit/crooked.py.
    """
    with Lan(4, home=home) as lan:
        server = Site(lan.nodes[0])
        desk, laptop, here = (Machine(node, server) for node in lan.nodes[1:])
        data = random.Random(17).randbytes(96 * MIB)  # noqa: S311 - contents of files
        (desk.root / "disk.img").write_bytes(data)
        for machine, wrong in ((desk, ()), (laptop, crooked)):
            machine("reconcile", machine.root)
            machine.watch(crooked=wrong)
            machine.until("peers", is_there)
        server.node.shape(8.0)
        for machine in (desk, laptop):
            machine.node.shape(40.0)
        here.watch()
        here.until("peers", is_there)
        with peers_of(here, browser) as seen:
            yield here, desk, seen


@contextmanager
def peers_of(machine: Machine, browser: Browser) -> Iterator[Visit]:
    """A browser on it, at its page of peers."""
    link = str(json.loads(machine("ui", "--json", "--listen", "127.0.0.1:0"))["link"])
    with browser_on(machine.node, browser) as there, visit(there, link) as seen:
        seen.page.get_by_role("navigation").get_by_role("link", name="Peers").click()
        yield seen


def peers(home: Path, browser: Browser) -> None:
    """Two neighbours give blocks, and one tells to whom; then all that came."""
    with neighbours(home, browser) as (here, desk, seen):
        connected = seen.page.get_by_role("row").filter(has_text=GIVES)
        expect(connected).to_have_count(2)
        take(seen.page, "peers")
        with peers_of(desk, browser) as theirs:
            expect(theirs.page.get_by_role("heading", name="Who is given blocks")).to_be_visible()
            take(theirs.page, "given")
        here.until("status", lambda live: live["phase"] == "idle" and (here.root / "disk.img").is_file())
        seen.go("/")
        seen.page.locator("main").get_by_role("link", name="root").click()
        expect(seen.page.get_by_role("heading", name="Where blocks came from")).to_be_visible()
        take(seen.page, "origins")


def ban(home: Path, browser: Browser) -> None:
    """One neighbour gives blocks, the other one wrong ones."""
    with neighbours(home, browser, "corrupt") as (_, _, seen):
        expect(seen.page.get_by_role("button", name="Lift the ban")).to_be_visible()
        expect(seen.page.get_by_role("row").filter(has_text=GIVES)).to_have_count(1)
        take(seen.page, "ban")


def take(page: Page, name: str, *, whole: bool = False) -> None:
    """Keep what is seen, or all of a long page."""
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled", full_page=whole)


def main() -> int:
    """Make them all."""
    home = Path(tempfile.mkdtemp(prefix="blocksync-"))
    scene = Scene(home)
    try:
        tokens = home / "tokens"
        tokens.write_text(TOKENS)
        tokens.chmod(0o600)
        serve = ("serve", home / "server", "--listen", "127.0.0.1:0", "--token-file", tokens)
        with scene.running(*serve) as server:
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
                    take(seen.page, "roots")
                    seen.page.get_by_role("link", name="See what it would delete").click()
                    expect(seen.page.get_by_text("It waits, because")).to_be_visible()
                    take(seen.page, "plan")
                    seen.go("/")
                    seen.page.get_by_role("link", name="music").click()
                    expect(seen.page.get_by_text("What waits, and why")).to_be_visible()
                    take(seen.page, "root")
                    seen.page.get_by_label("Why is this path as it is?").fill("overture.flac")
                    seen.page.get_by_role("button", name="Explain").click()
                    expect(seen.page.get_by_role("heading", name="overture.flac")).to_be_visible()
                    take(seen.page, "explain")
                    conflicts(scene, seen, address)
                    volumes(scene, seen)
                    syncing(scene, seen, address)
                    servers(scene, address)
                    several_servers(scene, seen)
                    doors(scene, seen, browser)
                    trash(seen, scene.home / "laptop")
                    ignored(scene, seen, roots["music"])
                    around(scene, seen, scene.home / "desk")
                with visit(browser, scene.link(), size=NARROW, dark=True) as seen:
                    expect(seen.page.get_by_text("Waits for you", exact=True)).to_be_visible()
                    take(seen.page, "narrow")
                peers(home / "peers", browser)
                ban(home / "ban", browser)
    finally:
        shutil.rmtree(home)
    return 0


def without_mounts() -> int:
    """Make them in a process that sees no mount of others: the page lists whatever is mounted on the machine."""
    own = 'umount --lazy --all --types fuse.blocksync; exec "$@"'
    words = ["unshare", "--mount", "--propagation=private", "sh", "-c", own, "sh", sys.executable, "-m"]
    return subprocess.run([*words, "scripts.screens", _ALONE], check=False).returncode


if __name__ == "__main__":
    sys.exit(main() if _ALONE in sys.argv else without_mounts())
