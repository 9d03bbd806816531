"""How soon the page is there that has much to show: a part of `python -m benchmarks page`.

One user has many roots, one of them with very many conflicts, and a mounted volume with an image of 1 TiB, beside one
that shares half of its blocks, and a clone. The volume is mounted for real. Its tree is that of `bench_maps`: real
leaves, whose blocks nobody has, because neither a map nor the page reads one.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from playwright.sync_api import expect

from benchmarks.bench_maps import make_image, make_others
from benchmarks.harness import Result
from blockfs.tree.schema import ROOT_INO
from blockfs.tree.store import Tree
from scripts.screens import Scene
from tests.kit.chromium import Visit, chromium, visit


class Many(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything there is.

    Attributes:
        roots: In step with the server; the one with conflicts is among them.
        conflicts: Conflict copies of one root, which is paused.
        gib: Size of the image.
        paints: How often each page is loaded.
    """

    roots: int = 100
    conflicts: int = 10_000
    gib: int = 1024
    paints: int = 7


QUICK: Final = Many(roots=5, conflicts=120, gib=4, paints=2)

# A page that waits for a look is loaded anew when there is something to see: counted is the first of them.
_NOTE_PAINT: Final = """new PerformanceObserver(found => {
    for (const each of found.getEntriesByName("first-contentful-paint")) sessionStorage.painted ??= each.startTime
}).observe({type: "paint", buffered: true})"""

# The page's policy allows no eval, by which `wait_for_function` asks again.
PAINTED: Final = """() => new Promise(done => new PerformanceObserver(found => {
    for (const each of found.getEntriesByName("first-contentful-paint")) done(each.startTime)
}).observe({type: "paint", buffered: true}))"""

_NOTE_CLICK: Final = """() => addEventListener("click",
    () => sessionStorage.setItem("clicked", performance.timeOrigin + performance.now()), {capture: true, once: true})"""
_SINCE_CLICK: Final = "painted => performance.timeOrigin + painted - Number(sessionStorage.getItem('clicked'))"

# A process for all of them: a hundred starts of the command are a minute.
_LINK: Final = """
import sys
from syncer.cli.main import run
url, token, *roots = sys.argv[1:]
for number, root in enumerate(roots):
    if run(["link", root, f"{url}-{number}", "--token-file", token]):
        sys.exit(f"{root} was not linked")
"""


def run(many: Many) -> list[Result]:
    """All rows, on a server, a daemon, a volume and a browser of its own."""
    home = Path(tempfile.mkdtemp(prefix="blocksync-page-"))
    scene = Scene(home)
    try:
        with scene.running("serve", home / "server", "--listen", "127.0.0.1:0") as server:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "listening on" in line).split()[-1]
            crowded = _make_roots(scene, f"pithos+{address}/v1/default/root", many)
            with _mounted(scene, many) as names, scene.running("watch"), chromium() as browser:
                scene.until(crowded, "paused")
                with visit(browser, scene.link()) as seen:
                    return [
                        _roots(seen, many),
                        *_conflicts(seen, crowded, many),
                        *_volumes(seen, crowded.parent / "vms", names, many),
                        *_looks(seen, crowded, many),
                    ]
    finally:
        shutil.rmtree(home)


def _make_roots(scene: Scene, url: str, many: Many) -> Path:
    """Link them; returns the one with conflicts, which is paused."""
    roots = [scene.home / f"root {number:03}" for number in range(many.roots)]
    for root in roots:
        root.mkdir()
    (roots[0] / "f0.txt").write_bytes(b"theirs")  # of the pair that is compared
    for number in range(many.conflicts):
        (roots[0] / _conflict(number)).write_bytes(b"mine %d" % number)
    words: list[str | Path] = [sys.executable, "-c", _LINK, url, scene.home / "server/token", *roots]
    done = subprocess.run(words, env=scene.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scene("pause", roots[0])
    return roots[0]


def _conflict(number: int) -> str:
    return f"f{number} (conflict laptop 20260101T000000Z {number:06x}).txt"


@contextmanager
def _mounted(scene: Scene, many: Many) -> Iterator[list[str]]:
    """A volume with the images; yields as many names of the first one as there are paints: each map is a new one."""
    volume, point = scene.home / "volume", scene.home / "vms"
    point.mkdir()
    scene("init", volume)
    names = [f"image-{number}" for number in range(many.paints)]
    tree = Tree.open(os.fsencode(volume / "tree"))
    tree.begin_mount()
    try:
        image = make_image(tree, many.gib)
        for name in names:
            tree.link(ROOT_INO, os.fsencode(name), image.ino)
        tree.put_inode(replace(image, nlink=1 + len(names)), content_changed=False)
        make_others(tree, image, many.gib)
        tree.end_mount()
    finally:
        tree.close()
    scene("mount", volume, point)
    try:
        yield names
    finally:
        scene("umount", point)


def _roots(seen: Visit, many: Many) -> Result:
    """All of them are in step when it is measured, but for the paused one."""
    cards = seen.page.locator("section.card")
    expect(cards).to_have_count(many.roots)
    expect(seen.page.get_by_text("In step", exact=True)).to_have_count(many.roots - 1)
    return _paints(seen, f"{many.roots} roots", "/", lambda: expect(cards).to_have_count(many.roots), many)


def _conflicts(seen: Visit, root: Path, many: Many) -> list[Result]:
    """The first look has the command list all of them; the page keeps what it was told for ten minutes."""
    about = f"the first page of {many.conflicts:,} conflicts"
    seen.go("/conflicts")
    first = seen.page.get_by_text(re.compile("^Page 1 of"))
    soon = _from_click(
        seen, lambda: seen.page.locator("main").get_by_role("link", name=root.name).click(), first.wait_for
    )
    path = seen.page.evaluate("location.pathname")
    return [
        Result(work=f"from click to {about}, not looked at before", subject="page", unit="s", values=[soon]),
        _paints(seen, about, path, lambda: expect(first).to_be_visible(), many),
    ]


def _volumes(seen: Visit, point: Path, names: list[str], many: Many) -> list[Result]:
    """Each map is drawn for the first time, from a field of the volume's page."""
    page = seen.page
    volume = page.locator("main").get_by_role("link", name=str(point))
    found = [_paints(seen, "volumes", "/volumes", lambda: expect(volume).to_be_visible(), many)]
    volume.click()
    field = page.get_by_label(re.compile("^The map of a file"))
    field.wait_for()
    path, soon = page.evaluate("location.pathname"), []
    for name in names:
        seen.go(path)
        field.fill(name)
        drawn = page.locator("svg.blockmap").wait_for
        soon.append(_from_click(seen, page.get_by_role("button", name="Draw").click, drawn))
        assert page.locator("svg.blockmap rect").count()
    work = f"from click to picture: a map of {many.gib:,} GiB, beside one that shares half, and a clone"
    return [*found, Result(work=work, subject="page", unit="s", values=soon)]


def _looks(seen: Visit, root: Path, many: Many) -> list[Result]:
    """Pages for which a command or a thread has to look; each is loaded as if nobody had looked before."""
    page = seen.page
    page.add_init_script(_NOTE_PAINT)

    def behind(path: str, link: str) -> str:
        seen.go(path)
        return page.locator("main").get_by_role("link", name=link).first.get_attribute("href") or ""

    of_root = behind("/conflicts", str(root)).removesuffix("/conflicts")
    seen.go("/servers")  # there is one
    of_server = str(page.evaluate("location.pathname"))
    looks = {
        f"the plan of {many.conflicts:,} files": f"{of_root}/plan?",
        "Explain": f"{of_root}/explain?path={quote(_conflict(0))}&",
        f"{many.conflicts:,} conflicts": f"{of_root}/conflicts?",
        "a comparison of two versions": f"{of_root}/conflicts/compare?path={quote(_conflict(0))}&",
        "the trash": f"{of_root}/trash?",
        "Ignored": f"{of_root}/ignored?",
        "a volume": f"{behind('/volumes', str(root.parent / 'vms'))}?",
        "a server": f"{of_server}?",
        f"Doctor, {many.roots} roots": "/doctor?",
    }
    found = [_first_and_whole(seen, what, path, many) for what, path in looks.items()]
    heads: dict[str, tuple[str, str | re.Pattern[str]]] = {
        "a root's own page": (of_root, re.compile("^What waits")),
        "Peers": ("/peers", "Peers"),
        "the roots whose conflicts there are": ("/conflicts", "Conflicts"),
        "the roots whose trash there is": ("/trash", "Trash"),
    }
    for what, (path, heading) in heads.items():
        head = page.get_by_role("heading", name=heading)
        found.append(_paints(seen, what, path, head.wait_for, many))
    return found


def _first_and_whole(seen: Visit, what: str, path: str, many: Many) -> Result:
    """First contentful paints of a page that nobody has looked at before; and how soon all is there."""
    firsts, wholes = [], []
    for _ in range(many.paints):
        seen.page.evaluate("sessionStorage.removeItem('painted')")
        began_s = time.monotonic()
        seen.go(f"{path}again=1")
        seen.page.get_by_role("link", name="Look again").wait_for()
        wholes.append(time.monotonic() - began_s)
        firsts.append(float(seen.page.evaluate("sessionStorage.painted")) / 1000)
    notes = {"whole_s": statistics.median(wholes)}
    return Result(work=f"first paint, {what}, looked at anew", subject="page", unit="s", values=firsts, notes=notes)


def _paints(seen: Visit, what: str, path: str, check: Callable[[], None], many: Many) -> Result:
    """First contentful paints of a page that then has what it should."""
    values = []
    for _ in range(many.paints):
        seen.go(path)
        values.append(float(seen.page.evaluate(PAINTED)) / 1000)
        check()
    return Result(work=f"first paint, {what}", subject="page", unit="s", values=values)


def _from_click(seen: Visit, click: Callable[[], None], is_there: Callable[[], None]) -> float:
    """Seconds from a click until the browser has painted the page behind it, however many it was sent through."""
    seen.page.evaluate(_NOTE_CLICK)
    click()
    is_there()
    painted = float(seen.page.evaluate(PAINTED))
    return float(seen.page.evaluate(_SINCE_CLICK, painted)) / 1000
