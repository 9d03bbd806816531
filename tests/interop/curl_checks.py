"""What HTTP itself promises, with curl."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.interop.clients import Program
from tests.interop.session import BLOCK, TOKENS, Session, data, same


class Curl:
    """curl with alice's token, in one container."""

    def __init__(self, session: Session, container: str) -> None:
        self.session = session
        self.container = container
        self.url = f"{session.url}/v1/alice/{container}"
        self._program = Program(["curl", "--silent", "--show-error"], {})

    def __call__(self, *arguments: str | Path, answer: str = "") -> str:
        token = ("-H", f"X-Auth-Token: {TOKENS['alice']}")
        return self.session.run(self._program, *token, *arguments, answer=answer)

    def status(self, *arguments: str | Path, answer: str = "") -> int:
        return int(self("-o", "/dev/null", "-w", "%{http_code}", *arguments, answer=answer))


def upload_with_expect(curl: Curl) -> None:
    """The body is sent only after the server has said that it wants it."""
    file = curl.session.file("expect", data(40 * BLOCK, 40))
    expect = ("-H", "Expect: 100-continue", "--expect100-timeout", "30")
    same(curl.status("-T", file, *expect, f"{curl.url}/f"), 201, "status")
    trace = curl("-v", "--stderr", "-", "-o", "/dev/null", "-T", file, *expect, f"{curl.session.url}/v1/alice/none/f")
    assert "404" in trace
    assert "100 Continue" not in trace, "a body was asked for that is not wanted"


def chunked_upload(curl: Curl) -> None:
    text = "0123456789" * 20_000
    same(curl.status("-T", "-", f"{curl.url}/f", answer=text), 201, "status")
    same(curl(f"{curl.url}/f"), text, "content")


def resume_and_ranges(curl: Curl) -> None:
    content = data(10 * BLOCK, 41)
    curl("-T", curl.session.file("r", content), f"{curl.url}/f")
    half = curl.session.file("half", content[:300_000])
    curl("-C", "-", "-o", half, f"{curl.url}/f")
    same(half.read_bytes(), content, "resumed")
    target = curl.session.place("tail")
    curl("-r", "-100", "-o", target, f"{curl.url}/f")
    same(target.read_bytes(), content[-100:], "last bytes")
    same(curl.status("-r", f"{len(content)}-", f"{curl.url}/f"), 416, "status")


def conditions(curl: Curl) -> None:
    curl("-T", curl.session.file("c", b"x"), f"{curl.url}/f")
    head = dict(line.split(": ", 1) for line in curl("-I", f"{curl.url}/f").splitlines() if ": " in line)
    etag = {name.lower(): value for name, value in head.items()}["etag"]
    same(curl.status("-H", f"If-None-Match: {etag}", f"{curl.url}/f"), 304, "If-None-Match")
    same(curl.status("-H", 'If-Match: "other"', f"{curl.url}/f"), 412, "If-Match")
    wrong = hashlib.md5(b"y").hexdigest()
    same(curl.status("-T", curl.session.file("c", b"x"), "-H", f"ETag: {wrong}", f"{curl.url}/f"), 422, "wrong MD5")


def methods(curl: Curl) -> None:
    for method, path in (("OPTIONS", ""), ("PATCH", "/f"), ("COPY", "")):
        reply = curl("-i", "-X", method, curl.url + path)
        assert " 405 " in reply.splitlines()[0], reply
        assert "allow:" in reply.lower()
    same(curl.status("-I", f"{curl.url}/none"), 404, "HEAD of nothing")
    same(curl.status("-I", curl.url), 204, "HEAD of the container")
    nobody = Program(["curl", "--silent", "-I"], {})
    for path in ("", "/none"):
        assert " 401 " in curl.session.run(nobody, curl.url + path).splitlines()[0], "somebody is told what exists"


CHECKS: Final[tuple[Callable[[Curl], None], ...]] = (
    upload_with_expect,
    chunked_upload,
    resume_and_ranges,
    conditions,
    methods,
)
