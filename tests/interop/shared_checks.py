"""One container, two kinds of clients: kamaki and `blocksync reconcile`, by the commands of docs/guide/kamaki.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.interop.clients import Program
from tests.interop.kamaki_checks import Kamaki
from tests.interop.session import BLOCK, BLOCKSYNC, CommandError, Session, data, same, tree

KEY: Final = (".blocksync", ".blocksync/lan-key")  # of the share: its directory, and the key


class Both:
    """A folder that is linked to a container by kamaki's configuration."""

    def __init__(self, session: Session, kamaki: Kamaki, container: str) -> None:
        self.session = session
        self.kamaki = kamaki
        self.container = container
        self.root = session.folder / f"root-{container}"
        self._environment = {
            "HOME": str(session.folder),
            "KAMAKI_CONFIG": str(kamaki.config),
            "XDG_STATE_HOME": str(session.folder / "state"),
            "XDG_DATA_HOME": str(session.folder / "data"),
        }
        self.root.mkdir()
        self("link", self.root, f"kamaki://here/{container}")

    def __call__(self, *arguments: object) -> str:
        program = Program([BLOCKSYNC], {})
        return self.session.run(program, *map(str, arguments), environment=self._environment)

    def reconcile(self) -> None:
        self("reconcile", self.root)

    def files(self) -> dict[str, bytes]:
        return {name: found for name, found in tree(self.root).items() if not name.startswith(".blocksync")}


def what_kamaki_uploads_arrives(both: Both) -> None:
    content = data(5 * BLOCK + 3, 30)
    both.kamaki.upload("f", content, f"/{both.container}/d/f")
    both.kamaki("file", "mkdir", f"/{both.container}/empty")
    both.reconcile()
    same(both.files(), {"d/f": content}, "files")
    assert (both.root / "empty").is_dir()


def what_is_pushed_kamaki_downloads(both: Both) -> None:
    content = data(4 * BLOCK + 1, 31)
    (both.root / "d").mkdir()
    (both.root / "d" / "large").write_bytes(content)
    (both.root / "small").write_bytes(b"small")
    both.reconcile()
    same(both.kamaki.names(both.container), [*KEY, "d", "d/large", "small"], "names")
    same(both.kamaki.read(f"/{both.container}/d/large"), content, "large")
    same(both.kamaki.read(f"/{both.container}/small"), b"small", "small")
    downloaded = tree_of_download(both)
    same(sorted(downloaded), [KEY[1], "d/large", "small"], "files of download -r")
    same((downloaded["d/large"], downloaded["small"]), (content, b"small"), "download -r")


def tree_of_download(both: Both) -> dict[str, bytes]:
    target: Path = both.session.place(f"downloaded-{both.container}")
    target.mkdir()
    both.kamaki("file", "download", f"/{both.container}", target, "-r", "-N")
    return {name.removeprefix(f"{both.container}/"): found for name, found in tree(target).items()}


def changes_go_both_ways(both: Both) -> None:
    content = data(8 * BLOCK, 32)
    (both.root / "f").write_bytes(content)
    both.reconcile()
    changed = content[: 2 * BLOCK] + data(BLOCK, 33) + content[3 * BLOCK :]
    both.kamaki.upload("f", changed, f"/{both.container}/f", "-f")
    both.reconcile()
    same(both.files(), {"f": changed}, "after kamaki's change")
    both.kamaki("file", "append", both.session.file("more", b"more"), f"/{both.container}/f", "-N")
    both.reconcile()
    same(both.files(), {"f": changed + b"more"}, "after kamaki's append")
    (both.root / "f").write_bytes(content)
    both.reconcile()
    same(both.kamaki.read(f"/{both.container}/f"), content, "after our change")


def moves_and_deletions_go_both_ways(both: Both) -> None:
    for name in ("a", "b", "c"):
        (both.root / name).write_bytes(name.encode())
    both.reconcile()
    both.kamaki("file", "move", f"/{both.container}/a", f"/{both.container}/moved")
    both.kamaki("file", "delete", f"/{both.container}/b", "--yes")
    both.reconcile()
    same(both.files(), {"moved": b"a", "c": b"c"}, "after kamaki's")
    (both.root / "c").rename(both.root / "renamed")
    (both.root / "moved").unlink()
    both.reconcile()
    same(both.kamaki.names(both.container), [*KEY, "renamed"], "after ours")


def both_edit_and_nothing_is_lost(both: Both) -> None:
    (both.root / "f").write_bytes(b"base")
    both.reconcile()
    both.kamaki.upload("f", b"of kamaki", f"/{both.container}/f", "-f")
    (both.root / "f").write_bytes(b"of ours")
    try:
        both.reconcile()
    except CommandError as error:  # exit 4 says that a conflict copy was made
        if "exit 4" not in str(error):
            raise
    same(sorted(both.files().values()), [b"of kamaki", b"of ours"], "contents")


CHECKS: Final[tuple[Callable[[Both], None], ...]] = (
    what_kamaki_uploads_arrives,
    what_is_pushed_kamaki_downloads,
    changes_go_both_ways,
    moves_and_deletions_go_both_ways,
    both_edit_and_nothing_is_lost,
)
