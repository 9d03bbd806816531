"""TLS of our own, tokens and certificates that are replaced while the server runs, and unsafe starts."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.live_server import BEFORE_THEY_GO_S, BLOCKSYNC, TOKENS, ServerProcess, private_text
from tests.integration.syncing import Sync

TLS = Path(__file__).parents[1] / "fakes" / "tls"


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed one for 127.0.0.1."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


class Secure:
    """A server with TLS, and what it was given."""

    def __init__(self, home: Path) -> None:
        self.tokens = private_text(home / "tokens", TOKENS)
        self.certificate, self.key = home / "server.pem", home / "server.key"
        self.certificate.write_bytes((TLS / "server.pem").read_bytes())
        private_text(self.key, (TLS / "server.key").read_text())
        command = [BLOCKSYNC, "serve", str(home / "s"), "--listen", "127.0.0.1:0", "--token-file", str(self.tokens)]
        self.process = ServerProcess([*command, "--tls-cert", str(self.certificate), "--tls-key", str(self.key)])
        self.address = self.process.ready_line.removeprefix("listening on https://")

    def connection(self, trusted: Path | None = None, timeout: float = 30) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=trusted or TLS / "server.pem")
        return http.client.HTTPSConnection(self.address, context=context, timeout=timeout)

    def status(self, token: str, trusted: Path | None = None) -> int:
        line = self.connection(trusted)
        try:
            line.request("HEAD", "/v1/alice", headers={"X-Auth-Token": token})
            return line.getresponse().status
        finally:
            line.close()

    def hang_up(self, expected: str) -> str:
        """SIGHUP; waits for the line that says what became of it."""
        self.process.process.send_signal(signal.SIGHUP)
        assert self.process.process.stderr is not None
        return next(line for line in self.process.process.stderr if expected in line)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    made = Secure(tmp_path)
    with made.process:
        yield made


def test_it_speaks_https_and_not_http(secure: Secure) -> None:
    assert secure.process.ready_line.startswith("listening on https://127.0.0.1:")
    assert secure.status("token-alice") == 204
    plain = http.client.HTTPConnection(secure.address, timeout=120)
    plain.request("HEAD", "/v1/alice")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        plain.getresponse()
    plain.close()


def test_a_token_that_is_withdrawn_counts_no_more_and_its_connections_end(secure: Secure) -> None:
    held = secure.connection()
    held.request("HEAD", "/v1/alice", headers={"X-Auth-Token": "token-alice"})
    held.getresponse().read()
    secure.tokens.write_text("token-new alice\ntoken-bob bob\n")
    secure.hang_up("tokens read again: 2")
    assert (secure.status("token-alice"), secure.status("token-new")) == (401, 204)
    with contextlib.suppress(ConnectionError, ssl.SSLError):  # an end with an error is one, too
        assert held.sock.recv(100) == b""
    held.close()


def test_what_waits_for_changes_ends_with_its_token(secure: Secure) -> None:
    """Breaks when a long poll tells somebody without a valid token what changes."""
    line = secure.connection()
    fields = {"X-Auth-Token": "token-alice"}
    line.request("PUT", "/v1/alice/c", headers=fields)
    version = line.getresponse()
    version.read()
    since = version.headers["X-Container-Version"]
    line.request("GET", f"/v1/alice/c?changes&since={since}&wait=300", headers=fields)
    secure.tokens.write_text("token-bob bob\n")
    secure.hang_up("tokens read again: 1")
    with pytest.raises((http.client.HTTPException, OSError)):
        line.getresponse()
    line.close()


def test_a_certificate_is_replaced_without_a_restart(secure: Secure, tmp_path: Path) -> None:
    other, key = make_certificate(tmp_path, "other")
    held = secure.connection()
    held.request("HEAD", "/v1/alice", headers={"X-Auth-Token": "token-alice"})
    held.getresponse().read()
    os.replace(other, secure.certificate)
    os.replace(key, secure.key)
    secure.hang_up("certificate read again")
    assert secure.status("token-alice", secure.certificate) == 204
    with pytest.raises(ssl.SSLCertVerificationError):
        secure.status("token-alice")
    held.request("HEAD", "/v1/alice", headers={"X-Auth-Token": "token-alice"})
    assert held.getresponse().status == 204  # it stands
    held.close()


def test_what_cannot_be_read_again_stays_as_it_was(secure: Secure, tmp_path: Path) -> None:
    """Also one of the two: a broken certificate must not keep a token from being withdrawn."""
    secure.tokens.write_text("nonsense\n")
    assert "TOKEN ACCOUNT" in secure.hang_up("tokens.not_renewed")
    assert secure.status("token-alice") == 204
    _, key = make_certificate(tmp_path, "another")
    os.replace(key, secure.key)  # not the certificate's
    secure.tokens.write_text("token-bob bob\n")
    secure.hang_up("certificate.not_renewed")
    assert secure.status("token-alice") == 401


def test_silent_connections_before_the_handshake_are_counted_too(tmp_path: Path) -> None:
    tokens = private_text(tmp_path / "tokens", TOKENS)
    key = private_text(tmp_path / "key", (TLS / "server.key").read_text())
    more = ["--token-file", str(tokens), "--tls-cert", str(TLS / "server.pem"), "--tls-key", str(key)]
    command = ["prlimit", "--nofile=1024:1024", BLOCKSYNC, "serve", str(tmp_path / "s"), "--listen", "127.0.0.1:0"]
    with ServerProcess([*command, *more]) as server:
        host, port = server.ready_line.removeprefix("listening on https://").split(":")
        lines = [socket.create_connection((host, int(port)), timeout=120) for _ in range(1300)]
        context = ssl.create_default_context(cafile=TLS / "server.pem")
        answered = 0
        for _ in range(5):
            client = http.client.HTTPSConnection(host, int(port), context=context, timeout=BEFORE_THEY_GO_S)
            began = time.monotonic()
            try:
                client.request("HEAD", "/v1/alice", headers={"X-Auth-Token": "token-alice"})
                answered += client.getresponse().status == 204 and time.monotonic() - began < BEFORE_THEY_GO_S
            except OSError:
                pass
            client.close()
        for line in lines:
            line.close()
    assert answered >= 3


# --- the other side


@pytest.mark.parametrize("sent", [b"\x16\x03\x01", b"GET /v1/alice HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_what_a_connection_took_is_given_back_when_it_is_reset(secure: Secure, sent: bytes) -> None:
    """Breaks when each one leaves 300 KB until Python looks for cycles, or until a timer ends: also a stranger's."""
    host, _, port = secure.address.partition(":")
    context = ssl.create_default_context(cafile=TLS / "server.pem")

    def batch() -> int:
        lines = []
        for _ in range(100):
            line = socket.create_connection((host, int(port)), timeout=30)
            if sent.startswith(b"GET"):
                line = context.wrap_socket(line, server_hostname=host)
            line.sendall(sent)
            if sent.startswith(b"GET"):
                assert b" 401 " in line.recv(1000)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            lines.append(line)
        for line in lines:
            line.close()
        assert secure.status("token-alice") == 204  # what came before it has been looked at
        return secure.process.anonymous_bytes()

    batch()
    usual = batch()
    assert [batch() for _ in range(3)][-1] - usual < 20e6  # before: 86 to 96 MB


def test_link_trusts_a_ca_file_and_remembers_it(sync: Sync, secure: Secure, tmp_path: Path) -> None:
    url = f"pithos+https://{secure.address}/v1/alice/images"
    root = tmp_path / "root"
    root.mkdir()
    (root / "f").write_text("x")
    tokens = ("--token-file", secure.tokens)
    sync("link", root, url, *tokens, expect=13)
    assert "certificate verify failed" in sync.err
    sync("link", root, url, *tokens, "--ca-file", tmp_path / "none.pem", expect=2)
    sync("link", root, url.replace("https", "http"), *tokens, "--ca-file", TLS / "server.pem", expect=2)
    assert "pithos+https" in sync.err
    sync("link", root, url, *tokens, "--ca-file", os.path.relpath(TLS / "server.pem"))
    sync("reconcile", root)
    sync("link", root, url, *tokens)  # again, without saying it
    sync("reconcile", root)
    sync("link", root, url, *tokens, "--relink", expect=13)  # anew: the system's authorities


# --- unsafe starts


def start(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [BLOCKSYNC, "serve", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_folder_with_other_files_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    home, volume = tmp_path / "home", tmp_path / "volume"
    home.mkdir(mode=0o755)
    (home / "letter").write_text("x")
    subprocess.run([BLOCKSYNC, "init", str(volume)], check=True, capture_output=True)
    for folder in (home, volume):
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        ended = start(folder, "--listen", "127.0.0.1:0")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "files in it that are not a server's" in ended.stderr
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_server_s_own_folder_may_have_other_files_and_a_new_one_its_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "lost+found").mkdir()
    tokens = private_text(folder / "my-tokens", TOKENS)
    for _ in range(2):
        command = [BLOCKSYNC, "serve", str(folder), "--listen", "127.0.0.1:0", "--token-file", str(tokens)]
        with ServerProcess(command) as server:
            assert server.client()("HEAD", "").status == 204
        (folder / "notes").write_text("x")


def test_what_others_can_read_is_warned_of(tmp_path: Path) -> None:
    tokens = private_text(tmp_path / "tokens", TOKENS)
    key = private_text(tmp_path / "key", (TLS / "server.key").read_text())
    fixed = ["--listen", "127.0.0.1:0", "--token-file", str(tokens), "--tls-cert", str(TLS / "server.pem")]
    for mode, warned in ((0o600, 0), (0o640, 0), (0o604, 1)):
        for path, other in ((tokens, key), (key, tokens)):
            path.chmod(mode)
            other.chmod(0o600)
            with ServerProcess([BLOCKSYNC, "serve", str(tmp_path / "s"), *fixed, "--tls-key", str(key)]) as server:
                _, errors = server.end(signal.SIGTERM)
            assert [line for line in errors.splitlines() if "warning" in line and str(path) in line][warned:] == []
            assert errors.count("warning") == warned


def test_beyond_loopback_without_tls_is_warned_of(tmp_path: Path) -> None:
    key = private_text(tmp_path / "key", (TLS / "server.key").read_text())
    secure = ["--tls-cert", str(TLS / "server.pem"), "--tls-key", str(key)]
    for listen, more, warned in (
        ("0.0.0.0:0", [], True),
        ("0.0.0.0:0", secure, False),
        ("127.0.0.1:0", [], False),
    ):
        with ServerProcess([BLOCKSYNC, "serve", str(tmp_path / "s"), "--listen", listen, *more]) as server:
            _, errors = server.end(signal.SIGTERM)
        assert ("without TLS" in errors) == warned


def test_halves_and_nonsense_of_tls_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_text("x")
    cases = [
        ("go together", ["--tls-cert", TLS / "server.pem"]),
        ("go together", ["--tls-key", TLS / "server.key"]),
        ("can't be read", ["--tls-cert", tmp_path / "none", "--tls-key", TLS / "server.key"]),
        ("PEM", ["--tls-cert", tmp_path / "nonsense", "--tls-key", TLS / "server.key"]),
        ("PEM", ["--tls-cert", TLS / "server.pem", "--tls-key", tmp_path / "nonsense"]),
    ]
    for text, arguments in cases:
        ended = start(tmp_path / "s", "--listen", "127.0.0.1:0", *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert text in ended.stderr
        assert "Traceback" not in ended.stderr
        assert not (tmp_path / "s").exists()
