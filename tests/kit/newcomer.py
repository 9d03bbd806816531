"""Who has never seen it: from the Debian package on a fresh tree to a conflict that is settled on the page.

The test of the package takes this way, and `python -m scripts.walk` takes it again for the pictures of the guide.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, expect

from tests.kit import debian
from tests.kit.chromium import Visit, visit

TYPED: Final = {
    "install": """\
apt-get install -y --no-install-recommends /blocksync.deb
blocksync --version
""",
    "serve": """\
blocksync serve /srv/server --listen 127.0.0.1:0 &
""",
    "link": """\
mkdir desk laptop
blocksync link desk pithos+$SERVER/v1/default/work --token-file /srv/server/token
blocksync link laptop pithos+$SERVER/v1/default/work --token-file /srv/server/token
""",
    "sync": """\
echo 'what both know' > desk/report.txt
blocksync reconcile desk
blocksync reconcile laptop
""",
    "edit": """\
echo 'written at the desk' > desk/report.txt
echo 'written on the laptop, later' > laptop/report.txt
blocksync reconcile desk
blocksync reconcile laptop || true
""",
    "ui": """\
blocksync watch &
blocksync ui --listen 127.0.0.1:0
""",
}
"""What is typed, by steps. The end of a line in the background, and where the server is, the script waits for."""

_BEFORE: Final = """\
apt-get -qq update
mkdir -p /seen /root/me && cd /root/me
export BLOCKSYNC_PEERS=off LC_ALL=C.UTF-8
"""
_SERVED: Final = "until grep -q listening /told; do sleep 0.1; done; SERVER=$(sed -n 's/.*listening on //p' /told)"
_WATCHED: Final = 'until blocksync status --json | grep -q \'"phase":"idle"\'; do sleep 0.1; done'
_AFTER: Final = """\
until test -e /done; do sleep 0.1; done
cat desk/report.txt laptop/report.txt
echo all of it
"""

Take = Callable[[Visit, str], None]
"""Looks at a step: the page, and what it shows."""


def script() -> str:
    """What runs in the tree: each line is shown, with what it says, in a file of its step below /seen."""
    lines = [_BEFORE]
    for step, line in ((step, line) for step, typed in TYPED.items() for line in typed.splitlines()):
        quoted, seen = line.replace("'", "'\\''"), f"/seen/{step}"
        lines.append(f"echo '$ {quoted}' >>{seen}")
        if line.startswith("apt-get"):
            lines.append(f"{line} >/told 2>&1; tail -n 1 /told >>{seen}")
        elif line.endswith(" &"):
            lines.append(f"{line.removesuffix(' &')} >/told 2>&1 &")
            lines.append(f"{_SERVED}; grep listening /told >>{seen}" if " serve " in line else _WATCHED)
        elif " ui " in line:
            lines.append(f"{line} >/link.new && cat /link.new >>{seen} && mv /link.new /link")
        else:
            lines.append(f"{{ {line}; }} >>{seen} 2>&1")
    return "\n".join([*lines, _AFTER])


def walk(home: Path, browser: Browser, take: Take) -> dict[str, str]:
    """Take the way; what was typed and said in the terminal, by steps.

    Args:
        home: For the package and the tree.
        browser: Looks at the page.
        take: Called at each step on the page.
    """
    tree = debian.debian_tree(home / "tree")
    (tree / "blocksync.deb").write_bytes(debian.package().read_bytes())
    with subprocess.Popen(
        debian.command_in(tree, script()), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        while not (tree / "link").exists():
            assert running.poll() is None, running.communicate()[0]
            time.sleep(0.1)
        with visit(browser, (tree / "link").read_text().strip()) as seen:
            settle(seen, take)
        until_equal(tree / "root/me/desk/report.txt", b"written on the laptop, later\n")
        (tree / "done").touch()
        told, _ = running.communicate()
    assert told.endswith("written on the laptop, later\n" * 2 + "all of it\n"), told
    return {step: (tree / "seen" / step).read_text() for step in TYPED}


def settle(seen: Visit, take: Take) -> None:
    """On the page: from all roots to the version that counts."""
    page, main = seen.page, seen.page.locator("main")
    expect(page.get_by_text("1 conflict").first).to_be_visible()
    assert not seen.flaws()
    take(seen, "roots")
    page.get_by_role("navigation").get_by_role("link", name="Conflicts").click()
    main.get_by_role("link", name="laptop").click()
    expect(page.get_by_text("they differ")).to_be_visible()
    take(seen, "conflict")
    page.get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Line by line")).to_be_visible()
    take(seen, "compare")
    main.get_by_role("link", name="Conflicts").click()
    page.get_by_role("button", name="Take that of").click()
    expect(page.get_by_text("has the name; the other one is in the trash")).to_be_visible()
    assert not seen.flaws()
    take(seen, "settled")


def until_equal(path: Path, content: bytes) -> None:
    """Wait until the daemon has brought it to the other device."""
    deadline = time.monotonic() + 60
    while path.read_bytes() != content:
        assert time.monotonic() < deadline, f"{path} is still {path.read_bytes()!r}"
        time.sleep(0.1)
