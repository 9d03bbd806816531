"""What users of OpenStack's clients do: python-swiftclient, rclone's swift backend, curl."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Final

from tests.interop.clients import Program
from tests.interop.session import BLOCK, TOKENS, Session, data, refused, same, tree


class Swift:
    """The `swift` command with an account's configuration, in one container."""

    def __init__(self, session: Session, program: Program, container: str) -> None:
        self.session = session
        self.container = container
        self._program = program
        self._login = {
            "ST_AUTH": f"{session.url}/auth/v1.0",
            "ST_USER": "alice:someone",
            "ST_KEY": TOKENS["alice"],
        }

    def __call__(self, *arguments: object) -> str:
        return self.session.run(self._program, *map(str, arguments), environment=self._login)

    def names(self) -> list[str]:
        return self("list", self.container).splitlines()

    def read(self, name: str) -> bytes:
        target = self.session.place("swift-got")
        self("download", self.container, name, "-o", target)
        return target.read_bytes()


def upload_and_download(swift: Swift) -> None:
    """Both directions are checked by MD5 in the client."""
    content = data(5 * BLOCK + 7, 20)
    swift("upload", swift.container, swift.session.file("big", content), "--object-name", "d/big")
    swift("upload", swift.container, swift.session.file("empty", b""), "--object-name", "empty")
    same(swift.names(), ["d/big", "empty"], "names")
    same(swift.read("d/big"), content, "downloaded")
    same(swift.read("empty"), b"", "downloaded")
    assert hashlib.md5(content).hexdigest() in swift("stat", swift.container, "d/big")


def upload_again_is_skipped(swift: Swift) -> None:
    file = swift.session.file("again", data(3 * BLOCK, 21))
    swift("upload", swift.container, file, "--object-name", "f")
    before = len(swift.session.requests())
    swift("upload", "--skip-identical", swift.container, file, "--object-name", "f")
    assert not [path for method, path in swift.session.requests()[before:] if method == "PUT" and path.endswith("/f")]


def many_files(swift: Swift) -> None:
    files = {f"s/{number % 5}/{number:03}": b"%d" % number for number in range(60)}
    for name, content in files.items():
        swift.session.file(f"swift-many/{name}", content)
    swift("upload", swift.container, swift.session.folder / "files" / "swift-many", "--object-name", "all")
    target = swift.session.place("swift-fetched")
    target.mkdir()
    swift("download", swift.container, "--prefix", "all/", "-D", target)
    same({name.removeprefix("all/"): content for name, content in tree(target).items()}, files, "files")


def metadata_and_copy(swift: Swift) -> None:
    swift("upload", swift.container, swift.session.file("m", b"metadata"), "--object-name", "f")
    swift("post", swift.container, "f", "-m", "Colour:dark red", "-H", "Content-Encoding:x-none")
    told = swift("stat", swift.container, "f")
    assert "Meta Colour: dark red" in told
    assert "Content-Encoding: x-none" in told
    swift("copy", swift.container, "f", "-d", f"/{swift.container}/g")
    same(swift.read("g"), b"metadata", "copy")
    swift("copy", swift.container, "f", "-d", f"/{swift.container}/g", "--fresh-metadata")
    assert "Meta Colour" not in swift("stat", swift.container, "g")
    swift("post", swift.container, "-m", "Shape:round")
    assert "Meta Shape: round" in swift("stat", swift.container)
    assert "Account: alice" in swift("stat")


def delete(swift: Swift) -> None:
    swift("upload", swift.container, swift.session.file("x", b"x"), "--object-name", "f")
    swift("delete", swift.container, "f")
    same(swift.names(), [], "names")
    swift("upload", swift.container, swift.session.file("x", b"x"), "--object-name", "f")
    swift("delete", swift.container)
    assert swift.container not in swift("list").splitlines()


def what_another_protocol_wrote(swift: Swift) -> None:
    """An object that came block by block has no MD5: nothing may fail for that."""
    content = data(2 * BLOCK + 9, 22)
    file = swift.session.file("f", content)
    local = Program(["curl", "--silent", "--show-error", "--fail"], {})
    root = f"{swift.session.url}/v1/alice/{swift.container}"
    token = ("-H", f"X-Auth-Token: {TOKENS['alice']}")
    stream = ("-H", "Content-Type: application/octet-stream")
    ids = json.loads(
        swift.session.run(local, *token, *stream, "--data-binary", f"@{file}", f"{root}?update&format=json")
    )
    hashmap = json.dumps({"bytes": len(content), "hashes": ids})
    swift.session.run(local, *token, *stream, "-X", "PUT", "--data", hashmap, f"{root}/f?hashmap&format=json")
    same(swift.read("f"), content, "downloaded")


def a_large_object_in_segments(swift: Swift) -> None:
    content = data(10 * BLOCK + 5, 23)
    sent = swift.session.file("seg", content)
    swift("upload", "-S", str(3 * BLOCK), "--use-dlo", swift.container, sent, "--object-name", "f")
    same(swift.names(), ["f"], "names")
    same(swift.read("f"), content, "downloaded")
    swift("copy", swift.container, "f", "-d", f"/{swift.container}/g")
    swift("delete", swift.container, "f")
    same(swift.read("g"), content, "the copy, without the segments")
    same(swift("list", f"{swift.container}_segments"), "", "segments after the deletion")


def a_large_object_of_listed_segments(swift: Swift) -> None:
    content = data(10 * BLOCK + 5, 24)
    sent = swift.session.file("static", content)
    swift("upload", "-S", str(3 * BLOCK), "--use-slo", swift.container, sent, "--object-name", "f")
    same(swift.read("f"), content, "downloaded")
    swift("copy", swift.container, "f", "-d", f"/{swift.container}/g")
    swift("delete", swift.container, "f")
    same(swift.read("g"), content, "the copy, without the segments")
    same(swift("list", f"{swift.container}_segments"), "", "segments after the deletion")


def a_wrong_key_is_refused(swift: Swift) -> None:
    refused(lambda: swift("-K", "wrong", "list"))
    refused(lambda: swift("-U", "bob:bob", "list"))


SWIFT_CHECKS: Final[tuple[Callable[[Swift], None], ...]] = (
    upload_and_download,
    upload_again_is_skipped,
    many_files,
    metadata_and_copy,
    delete,
    what_another_protocol_wrote,
    a_large_object_in_segments,
    a_large_object_of_listed_segments,
    a_wrong_key_is_refused,
)


class Rclone:
    """rclone with its swift backend, in one container."""

    def __init__(self, session: Session, program: Program, container: str) -> None:
        self.session = session
        self.remote = f"ours:{container}"
        self._program = program
        prefix = "RCLONE_CONFIG_OURS_"
        self._login = {
            "RCLONE_CONFIG": str(session.folder / "rclone.conf"),
            f"{prefix}TYPE": "swift",
            f"{prefix}USER": "alice",
            f"{prefix}KEY": TOKENS["alice"],
            f"{prefix}AUTH": f"{session.url}/auth/v1.0",
            f"{prefix}AUTH_VERSION": "1",
        }

    def __call__(self, *arguments: object, answer: str = "") -> str:
        options = ("--retries", "1", "--low-level-retries", "1")
        return self.session.run(self._program, *map(str, arguments), *options, answer=answer, environment=self._login)


def sync_and_check(rclone: Rclone) -> None:
    """rclone compares sizes, MD5s and times after each transfer."""
    for number in range(40):
        rclone.session.file(f"rc/{number % 4}/{number}", data(number * 3000, number))
    source = rclone.session.folder / "files" / "rc"
    rclone("sync", source, rclone.remote, "--checksum")
    rclone("check", source, rclone.remote)
    before = len(rclone.session.requests())
    rclone("sync", source, rclone.remote)
    puts = [path for method, path in rclone.session.requests()[before:] if method in {"PUT", "POST"} and "/rc" in path]
    same(puts, [], "writes of a sync without changes")
    target = rclone.session.place("rc-got")
    rclone("copy", rclone.remote, target)
    same(tree(target), tree(source), "downloaded")


def sync_removes_and_moves(rclone: Rclone) -> None:
    rclone.session.file("rm/a", b"a")
    rclone.session.file("rm/b", b"b")
    source = rclone.session.folder / "files" / "rm"
    rclone("sync", source, rclone.remote)
    (source / "a").unlink()
    rclone("sync", source, rclone.remote)
    same(rclone("lsf", rclone.remote).splitlines(), ["b"], "names")
    rclone("moveto", f"{rclone.remote}/b", f"{rclone.remote}/d/c")
    same(sorted(rclone("lsf", "-R", rclone.remote).splitlines()), ["d/", "d/c"], "names")
    same(rclone("cat", f"{rclone.remote}/d/c"), "b", "content")
    rclone("purge", rclone.remote)


def a_part_of_a_file(rclone: Rclone) -> None:
    rclone.session.file("part/f", b"0123456789")
    rclone("copy", rclone.session.folder / "files" / "part", rclone.remote)
    same(rclone("cat", "--offset", "3", "--count", "4", f"{rclone.remote}/f"), "3456", "range")
    assert "10" in rclone("size", rclone.remote)
    rclone("about", "ours:")


def what_comes_in_chunks(rclone: Rclone) -> None:
    """A stream of unknown length, and a file above the chunk size: rclone makes segments."""
    text = "0123456789abcdef" * 20_000
    rclone("rcat", f"{rclone.remote}/stream", answer=text)
    same(rclone("cat", f"{rclone.remote}/stream"), text, "stream")
    content = data(1_000_000, 43)
    rclone("copyto", "--swift-chunk-size", "300k", rclone.session.file("big", content), f"{rclone.remote}/big")
    target = rclone.session.place("big-got")
    rclone("copyto", f"{rclone.remote}/big", target)
    same(target.read_bytes(), content, "downloaded")
    rclone("deletefile", f"{rclone.remote}/big")
    same(rclone("lsf", rclone.remote).split(), ["stream"], "names")


RCLONE_CHECKS: Final[tuple[Callable[[Rclone], None], ...]] = (
    sync_and_check,
    sync_removes_and_moves,
    a_part_of_a_file,
    what_comes_in_chunks,
)
