"""What goes wrong between client and server becomes one clear error with the right exit code."""

from __future__ import annotations

import hashlib
import socket
import ssl
from pathlib import Path

import pytest
import trio

from syncer.errors import (
    AuthError,
    NoSpaceError,
    NotFoundError,
    RemoteUnavailableError,
    SyncerError,
)
from syncer.remote.http.retry import RetryPolicy
from syncer.remote.http.transport import BadReplyError, HttpSettings, UntrustedError
from syncer.remote.pithos.client import PithosClient, open_pithos
from tests.contract.remotes import (
    BLOCK,
    QUICK,
    FakeRemote,
    head,
    path,
    play,
    store,
)
from tests.fakes.pithos import FakePithos, Fault, FaultKind

TLS = Path(__file__).parents[1] / "fakes" / "tls"


def content(seed: int, size: int) -> bytes:
    return hashlib.shake_128(b"error %d" % seed).digest(size)


ERRORS: list[tuple[int, type[SyncerError], int]] = [
    (401, AuthError, 12),
    (403, AuthError, 12),
    (404, NotFoundError, 10),
    (413, NoSpaceError, 17),
    (507, NoSpaceError, 17),
    (400, BadReplyError, 13),
    (302, BadReplyError, 13),
    (500, RemoteUnavailableError, 13),
    (503, RemoteUnavailableError, 13),
]


@pytest.mark.parametrize(("status", "error", "exit_code"), ERRORS, ids=[str(row[0]) for row in ERRORS])
def test_a_status_becomes_its_error_with_the_server_named(
    synnefo: FakeRemote, status: int, error: type[SyncerError], exit_code: int
) -> None:
    async def scenario(client: PithosClient) -> None:
        synnefo.server.inject(Fault(FaultKind.STATUS_BEFORE, method="PUT", times=100, status=status))
        with pytest.raises(error, match=r"127\.0\.0\.1") as caught:
            await store(client, "file", b"data")
        assert caught.value.exit_code == exit_code
        synnefo.server.clear_faults()
        assert await head(client, path("file")) is None

    play(synnefo, scenario)


def test_a_token_that_is_refused_before_a_large_body_is_read_is_no_lost_reply() -> None:
    """Sending breaks there, and the status can be read afterwards (12.29)."""
    with FakePithos(block_size=4 << 20) as server:
        server.store.make_container("alice", "vms")

        async def main(token: str) -> None:
            client = open_pithos(server.url(), token, policy=QUICK)
            await client.open()
            server.token = "another"
            server.unread = 1 << 20
            with pytest.raises(AuthError, match="401"):
                await client.uploads.put_blocks([content(1, 4 << 20)])
            await client.close()

        token = server.token
        for _ in range(8):
            server.token, server.unread = token, 1 << 62
            trio.run(main, token)


def test_a_quota_of_the_server_is_no_space(synnefo: FakeRemote) -> None:
    async def scenario(client: PithosClient) -> None:
        with pytest.raises(NoSpaceError, match="quota exceeded"):
            await store(client, "file", content(1, 3 * BLOCK))

    synnefo.server.store.quota_bytes = 2 * BLOCK
    try:
        play(synnefo, scenario)
    finally:
        synnefo.server.store.quota_bytes = None


def test_a_wrong_token_is_an_auth_error_and_is_not_repeated(synnefo: FakeRemote) -> None:
    async def main() -> None:
        client = open_pithos(synnefo.url, "wrong", policy=QUICK)
        with pytest.raises(AuthError, match="token"):
            await client.open()
        assert client.counters.requests == 1
        await client.close()

    trio.run(main)


@pytest.mark.parametrize("operation", ["open", "list_objects"])
def test_a_web_page_instead_of_an_answer_is_a_clear_error(synnefo: FakeRemote, operation: str) -> None:
    async def scenario(_client: PithosClient) -> None:
        client = synnefo.client()
        synnefo.server.inject(Fault(FaultKind.NOT_JSON, containing=f"/{synnefo.box_name}", times=100))
        with pytest.raises(BadReplyError, match="Pithos server"):
            await getattr(client, operation)()
        synnefo.server.clear_faults()
        await client.close()

    play(synnefo, scenario)


def test_a_refused_connection_names_the_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    async def main() -> None:
        client = open_pithos(f"pithos+http://127.0.0.1:{port}/v1/a/c", "token", policy=QUICK)
        with pytest.raises(RemoteUnavailableError, match=rf"127\.0\.0\.1:{port} is unreachable: Connection refused"):
            await client.open()
        assert client.counters.requests == QUICK.attempts
        await client.close()

    trio.run(main)


def test_a_server_that_never_answers_runs_into_the_time_out() -> None:
    async def main(port: int) -> None:
        client = open_pithos(
            f"pithos+http://127.0.0.1:{port}/v1/a/c",
            "token",
            policy=RetryPolicy(attempts=2, first_delay_s=0.001),
            settings=HttpSettings(read_timeout_s=0.05),
        )
        with pytest.raises(RemoteUnavailableError, match="timed out"):
            await client.open()
        assert client.counters.requests == 2
        await client.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        trio.run(main, silent.getsockname()[1])


def test_the_deadline_ends_a_call_that_the_time_outs_do_not() -> None:
    async def main(port: int) -> None:
        client = open_pithos(
            f"pithos+http://127.0.0.1:{port}/v1/a/c",
            "token",
            policy=RetryPolicy(deadline_s=0.05),
            settings=HttpSettings(read_timeout_s=2),
        )
        with pytest.raises(RemoteUnavailableError, match=r"no answer within 0\.05 s"):
            await client.open()
        await client.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        trio.run(main, silent.getsockname()[1])


def test_https_to_a_server_without_tls_is_unreachable(synnefo: FakeRemote) -> None:
    async def main() -> None:
        url = synnefo.url.replace("pithos+http:", "pithos+https:")
        client = open_pithos(url, "token", policy=QUICK)
        with pytest.raises(RemoteUnavailableError, match="TLS"):
            await client.open()
        await client.close()

    trio.run(main)


def test_tls_is_verified_against_the_given_authority_and_never_skipped() -> None:
    certificate, key = TLS / "server.pem", TLS / "server.key"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def main(server: FakePithos, host: str, ca_file: str | None) -> int:
        url = server.url().replace("pithos+http:", "pithos+https:").replace("127.0.0.1", host)
        client = open_pithos(url, server.token, policy=QUICK, settings=HttpSettings(ca_file=ca_file))
        try:
            return (await client.open(create=True)).grid.block_size
        finally:
            await client.close()

    with FakePithos(block_size=BLOCK, tls=context) as server:
        assert trio.run(main, server, "127.0.0.1", str(certificate)) == BLOCK
        # "127.1" is the same address under a name that the certificate does not have.
        for host, ca_file in (("127.0.0.1", None), ("127.1", str(certificate))):
            with pytest.raises(UntrustedError, match=r"TLS: .*certificate verify failed"):  # at once: no GaveUpError
                trio.run(main, server, host, ca_file)


@pytest.mark.parametrize("token", ["", "two words", "new\nline", "ümlaut"])
def test_a_token_that_can_not_be_a_header_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(AuthError, match="token") as caught:
        open_pithos("pithos+http://h/v1/a/c", token)
    assert not token or token not in str(caught.value)
