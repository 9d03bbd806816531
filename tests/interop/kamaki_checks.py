"""What kamaki's users do, one check each, in containers of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.interop.clients import Program
from tests.interop.session import BLOCK, TOKENS, Session, data, refused, same, tree

SMALL_FILES: Final = 300


class Kamaki:
    """kamaki with one account's configuration."""

    def __init__(self, session: Session, program: Program, account: str = "alice") -> None:
        self.session = session
        self.account = account
        folder = session.folder / f"kamaki-{account}"
        folder.mkdir(exist_ok=True)
        self.config = folder / "kamakirc"
        self.config.write_text(
            "[global]\n"
            "default_cloud = here\n"
            f"log_file = {folder / 'log'}\n"
            f"history_file = {folder / 'history'}\n"
            '[cloud "here"]\n'
            f"url = {session.url}/identity/v2.0\n"
            f"token = {TOKENS[account]}\n"
        )
        self.config.chmod(0o600)
        self._program = program

    def __call__(self, *arguments: str | Path, answer: str = "y\ny\n") -> str:
        environment = {"KAMAKI_CONFIG": str(self.config)}
        return self.session.run(self._program, *arguments, answer=answer, environment=environment)

    def json(self, *arguments: str) -> list[dict[str, object]]:
        """A listing's rows."""
        found = json.loads(self(*arguments, "--output-format", "json"))
        assert isinstance(found, list)
        return found

    def names(self, container: str) -> list[str]:
        return [str(row["name"]) for row in self.json("file", "list", f"/{container}")]

    def upload(self, name: str, content: bytes, target: str, *options: str) -> None:
        self("file", "upload", self.session.file(name, content), target, "-N", *options)

    def read(self, source: str, *options: str) -> bytes:
        target = self.session.place("got")
        target.unlink(missing_ok=True)
        self("file", "download", source, target, "-N", *options)
        return target.read_bytes()


class Scene:
    """What a check gets."""

    def __init__(self, kamaki: Kamaki, bob: Kamaki, container: str) -> None:
        self.kamaki = kamaki
        self.bob = bob
        self.session = kamaki.session
        self.container = container

    def sent_blocks(self, act: Callable[[], None]) -> int:
        """How many POSTs of blocks an act needs."""
        before = len(self.session.requests())
        act()
        return sum(
            method == "POST" and f"/{self.container}" in path for method, path in self.session.requests()[before:]
        )


def upload_and_download(scene: Scene) -> None:
    content = data(5 * BLOCK + 77, 1)
    scene.kamaki.upload("f", content, f"/{scene.container}/f")
    same(scene.kamaki.read(f"/{scene.container}/f"), content, "downloaded")
    for size in (0, 1, BLOCK, 2 * BLOCK):
        scene.kamaki.upload("f", content[:size], f"/{scene.container}/f{size}")
        same(scene.kamaki.read(f"/{scene.container}/f{size}"), content[:size], f"{size} bytes")


def trailing_zeros_survive(scene: Scene) -> None:
    content = b"x" + bytes(2 * BLOCK)
    scene.kamaki.upload("f", content, f"/{scene.container}/f")
    same(scene.kamaki.read(f"/{scene.container}/f"), content, "downloaded")


def upload_again_sends_nothing(scene: Scene) -> None:
    content = data(8 * BLOCK, 2)
    scene.kamaki.upload("f", content, f"/{scene.container}/f")
    same(scene.sent_blocks(lambda: scene.kamaki.upload("f", content, f"/{scene.container}/f", "-f")), 0, "blocks sent")


def one_block_changed_sends_one(scene: Scene) -> None:
    content = data(8 * BLOCK, 3)
    scene.kamaki.upload("f", content, f"/{scene.container}/f")
    changed = content[: 3 * BLOCK] + data(BLOCK, 4) + content[4 * BLOCK :]
    same(scene.sent_blocks(lambda: scene.kamaki.upload("f", changed, f"/{scene.container}/f", "-f")), 1, "blocks sent")
    same(scene.kamaki.read(f"/{scene.container}/f"), changed, "downloaded")


def a_download_resumes(scene: Scene) -> None:
    content = data(10 * BLOCK, 5)
    scene.kamaki.upload("f", content, f"/{scene.container}/f")
    target = scene.session.file("half", content[: 6 * BLOCK])
    before = len(scene.session.requests())
    scene.kamaki("file", "download", f"/{scene.container}/f", target, "-N", "--resume")
    same(target.read_bytes(), content, "downloaded")
    gets = [path for method, path in scene.session.requests()[before:] if method == "GET" and path.endswith("/f")]
    assert len(gets) <= 5, f"{len(gets)} requests for the 4 blocks that were not there"


def an_old_version_is_read(scene: Scene) -> None:
    scene.kamaki.upload("f", b"old", f"/{scene.container}/f")
    rows = scene.kamaki.json("file", "list", f"/{scene.container}")
    scene.kamaki.upload("f", b"new", f"/{scene.container}/f", "-f")
    version = str(rows[0]["x_object_version"])
    same(scene.kamaki.read(f"/{scene.container}/f", "--object-version", version), b"old", "older version")


def list_info_cat(scene: Scene) -> None:
    for name in ("b", "a/1", "a/2"):
        scene.kamaki.upload("f", name.encode(), f"/{scene.container}/{name}")
    same(scene.kamaki.names(scene.container), ["a/1", "a/2", "b"], "names")
    assert "content-length: 1" in scene.kamaki("file", "info", f"/{scene.container}/b")
    assert scene.kamaki("file", "cat", f"/{scene.container}/a/1").startswith("a/1")
    assert "hashes" in scene.kamaki("file", "info", f"/{scene.container}/b", "--hashmap")


def copy_and_move(scene: Scene) -> None:
    content = data(3 * BLOCK, 6)
    container = scene.container
    scene.kamaki.upload("f", content, f"/{container}/f")
    none = scene.sent_blocks(lambda: scene.kamaki("file", "copy", f"/{container}/f", f"/{container}/d/copy") and None)
    same(none, 0, "blocks sent")
    scene.kamaki("file", "move", f"/{container}/f", f"/{container}/moved")
    same(scene.kamaki.names(container), ["d/copy", "moved"], "names")
    same(scene.kamaki.read(f"/{container}/d/copy"), content, "copy")
    same(scene.kamaki.read(f"/{container}/moved"), content, "moved")
    scene.kamaki("file", "mkdir", f"/{container}/d")
    scene.kamaki("file", "move", f"/{container}/d", f"/{container}/e", "-r")
    same(scene.kamaki.names(container), ["e", "e/copy", "moved"], "names after the move of a directory")


def delete_and_mkdir(scene: Scene) -> None:
    container = scene.container
    scene.kamaki("file", "mkdir", f"/{container}/d")
    scene.kamaki("file", "create", f"/{container}/d/empty")
    scene.kamaki.upload("f", b"x", f"/{container}/f")
    scene.kamaki("file", "delete", f"/{container}/f", "--yes")
    same(scene.kamaki.names(container), ["d", "d/empty"], "names")
    scene.kamaki("file", "delete", f"/{container}/d", "-r", "--yes")
    same(scene.kamaki.names(container), [], "names")


def many_small_files(scene: Scene) -> None:
    folder = scene.session.folder / "files" / "many"
    for number in range(SMALL_FILES):
        scene.session.file(f"many/{number % 7}/{number:03}", f"file {number}\n".encode() * 20)
    scene.kamaki("file", "upload", folder, f"/{scene.container}/", "-r", "-N")
    assert len(scene.kamaki.names(scene.container)) >= SMALL_FILES
    target = scene.session.place("fetched")
    target.mkdir()
    scene.kamaki("file", "download", f"/{scene.container}", target, "-r", "-N")
    found = {Path(name).name: content for name, content in tree(target).items()}
    same(found, {Path(name).name: content for name, content in tree(folder).items()}, "300 files")


def append_truncate_overwrite(scene: Scene) -> None:
    container = scene.container
    content = data(2 * BLOCK + 100, 7)
    scene.kamaki.upload("f", content, f"/{container}/f")
    more = data(5000, 8)
    scene.kamaki("file", "append", scene.session.file("more", more), f"/{container}/f", "-N")
    content += more
    same(scene.kamaki.read(f"/{container}/f"), content, "appended")
    scene.kamaki("file", "truncate", f"/{container}/f", "--size", "100000")
    content = content[:100_000]
    same(scene.kamaki.read(f"/{container}/f"), content, "truncated")
    over = data(3000, 9)
    source = scene.session.file("over", over)
    scene.kamaki("file", "overwrite", source, f"/{container}/f", "--from", "64000", "--to", "66999", "-N")
    same(scene.kamaki.read(f"/{container}/f"), content[:64000] + over + content[67000:], "overwritten")


def metadata(scene: Scene) -> None:
    path = f"/{scene.container}/f"
    scene.kamaki.upload("f", b"x", path)
    scene.kamaki("file", "modify", path, "--metadata-add", "colour=red", "--metadata-add", "shape=round")
    scene.kamaki("file", "modify", path, "--metadata-del", "shape")
    info = scene.kamaki("file", "info", path)
    assert "x-object-meta-colour: red" in info
    assert "shape" not in info
    scene.kamaki("container", "modify", scene.container, "--metadata-add", "owner=me")
    assert "owner: me" in scene.kamaki("container", "info", scene.container, "--metadata")


def container_settings(scene: Scene) -> None:
    name = scene.container
    scene.kamaki("container", "modify", name, "--size-limit", "1000B")
    assert "1000" in scene.kamaki("container", "info", name, "--size-limit", "--bytes")
    refused(lambda: scene.kamaki.upload("f", bytes(2000), f"/{name}/f"), "limit")
    assert "none" in scene.kamaki("container", "modify", name, "--versioning", "none")
    assert name in scene.kamaki("container", "list")
    scene.kamaki("container", "empty", name, "--yes")
    scene.kamaki("container", "delete", name, "--yes")
    assert name not in [str(row["name"]) for row in scene.kamaki.json("container", "list")]


def sharing(scene: Scene) -> None:
    path = f"/{scene.container}/f"
    content = data(2 * BLOCK, 10)
    scene.kamaki.upload("f", content, path)
    scene.kamaki.upload("f", b"private", f"/{scene.container}/private")
    shown = scene.kamaki("file", "modify", path, "--read-permission", "bob")
    assert "read: bob" in shown, shown
    same([row["name"] for row in scene.bob.json("sharer", "list")], ["alice"], "sharers")
    same(scene.bob.read(f"pithos://alice{path}"), content, "read by bob")
    rows = scene.bob.json("file", "list", f"pithos://alice/{scene.container}")
    same([row["name"] for row in rows], ["f"], "names that bob sees")
    for target in (f"pithos://alice{path}", f"pithos://alice/{scene.container}/private"):
        refused(lambda target=target: scene.bob("file", "delete", target, "--yes"))  # type: ignore[misc]
    scene.kamaki.upload("g", content, f"/{scene.container}/g", "--read-permission", "bob")
    same(scene.bob.read(f"pithos://alice/{scene.container}/g"), content, "uploaded for bob")
    scene.kamaki("file", "modify", f"/{scene.container}/g", "--no-permissions")
    scene.kamaki("file", "modify", path, "--no-permissions")
    same(scene.bob.json("sharer", "list"), [], "sharers afterwards")


CHECKS: Final[tuple[Callable[[Scene], None], ...]] = (
    upload_and_download,
    trailing_zeros_survive,
    upload_again_sends_nothing,
    one_block_changed_sends_one,
    a_download_resumes,
    an_old_version_is_read,
    list_info_cat,
    copy_and_move,
    delete_and_mkdir,
    many_small_files,
    append_truncate_overwrite,
    metadata,
    container_settings,
    sharing,
)
