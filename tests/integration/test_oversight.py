"""`/healthz` and `/metrics` of a server: who may see what, and that asking often costs no more."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from syncer.server.folder import ServerFolder
from syncer.server.store.store import Store
from tests.integration.live_server import BLOCK, TOKENS, Client, Reply, serving

SECRET = "watching"
ALL = f"{TOKENS}{SECRET} /metrics\nmetrics-token metrics\nhealth-token healthz\n"


class Overseen:
    """A server, and whoever asks it."""

    def __init__(self, store: Store, address: str) -> None:
        self.store = store
        self.address = address

    def ask(self, path: str, method: str = "GET", **fields: str) -> Reply:
        line = http.client.HTTPConnection(self.address, timeout=60)
        line.request(method, path, headers={name.replace("_", "-"): value for name, value in fields.items()})
        response = line.getresponse()
        found = Reply(response.status, response.headers, response.read())
        line.close()
        return found

    def figures(self) -> dict[str, float]:
        found = self.ask("/metrics", Authorization=f"Bearer {SECRET}")
        assert found.status == 200
        assert found.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in found.body.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def overseen(tmp_path: Path) -> Iterator[Overseen]:
    with Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK)) as store, serving(store, ALL) as address:
        yield Overseen(store, address)


def test_anybody_may_ask_whether_it_is_well_and_learns_nothing_else(overseen: Overseen) -> None:
    for path in ("/healthz", "/healthz?verbose=1"):
        found = overseen.ask(path)
        assert (found.status, found.body) == (200, b"ok\n")
    found = overseen.ask("/healthz", "HEAD")
    assert (found.status, found.body) == (200, b"")


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "OPTIONS", "PATCH"])
def test_both_are_read_and_nothing_else(overseen: Overseen, path: str, method: str) -> None:
    found = overseen.ask(path, method)
    assert (found.status, found.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {SECRET}",
        f"Bearer {SECRET}x",
        "Bearer token-alice",  # an account's token: the sums are of all accounts
        "Bearer metrics-token",
        "Bearer \xff\xfe",
    ],
)
def test_figures_want_a_token_of_their_own(overseen: Overseen, authorization: str) -> None:
    found = overseen.ask("/metrics", **({"Authorization": authorization} if authorization else {}))
    assert found.status == 401
    assert found.headers["WWW-Authenticate"] == 'Bearer realm="metrics"'
    assert b"blocksync_server" not in found.body


@pytest.mark.parametrize("path", ["/v1/alice", "/metrics", "/%2Fmetrics", "/v1/%2Fmetrics", "/v1/metrics", "/"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE"])
def test_the_token_for_figures_opens_nothing_else(overseen: Overseen, path: str, method: str) -> None:
    assert overseen.ask(path, method, X_Auth_Token=SECRET).status == 401


def test_it_logs_in_nowhere(overseen: Overseen) -> None:
    for user in ("/metrics", "metrics", "alice"):
        assert overseen.ask("/auth/v1.0", X_Auth_User=user, X_Auth_Key=SECRET).status == 401
    assert overseen.ask("/identity/v2.0/tokens", "POST", X_Auth_Token=SECRET).status == 401


@pytest.mark.parametrize(("account", "token"), [("metrics", "metrics-token"), ("healthz", "health-token")])
def test_accounts_that_are_called_so_go_on(overseen: Overseen, account: str, token: str) -> None:
    client = Client(overseen.address, token, account)
    assert client("PUT", "/c").status == 201
    assert overseen.ask(f"/{account}", X_Auth_Token=token).body == b"c\n"
    client.close()


def test_figures_are_sums_and_name_nobody(overseen: Overseen) -> None:
    client = Client(overseen.address)
    client("PUT", "/holiday-photos")
    ids = client.upload("holiday-photos", b"x" * 100)
    assert client.put_hashmap("/holiday-photos/secret-name", 100, ids).status == 201
    assert client("GET", "/holiday-photos/secret-name").status == 200
    figures = overseen.figures()
    assert figures["blocksync_server_objects"] == figures["blocksync_server_blocks"] == 1
    assert figures["blocksync_server_logical_bytes"] == 100
    assert figures["blocksync_server_tokens"] == 5
    assert figures['blocksync_server_requests_total{method="PUT",status="201"}'] == 2
    assert figures['blocksync_server_request_seconds_count{method="PUT"}'] == 2
    assert figures['blocksync_server_connections{token="yes"}'] == 2
    assert figures["blocksync_server_free_bytes"] > 0
    assert figures["process_resident_memory_bytes"] > 0
    text = overseen.ask("/metrics", Authorization=f"bearer {SECRET}").body.decode()
    for name in ("alice", "holiday", "secret", SECRET, "token-"):
        assert name not in text
    client.close()


def test_made_up_methods_make_no_new_lines(overseen: Overseen) -> None:
    for method in ("PATCH", "OPTIONS", "LINK", "UNLINK", "PURGE", "SEARCH", "REPORT", "LOCK"):
        overseen.ask("/", method)
    assert sum("requests_total" in name for name in overseen.figures()) == 1


def test_asking_often_costs_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    with Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK)) as store:
        probe, figures = store.probe, store.figures
        monkeypatch.setattr(store, "probe", lambda: (looks.append("probe"), probe())[1])
        monkeypatch.setattr(store, "figures", lambda: (looks.append("figures"), figures())[1])
        monkeypatch.setattr("syncer.server.oversight.HEALTH_S", 1e6)
        monkeypatch.setattr("syncer.server.oversight.FIGURES_S", 1e6)
        with serving(store, ALL) as address, ThreadPoolExecutor(16) as pool:
            overseen = Overseen(store, address)
            assert set(pool.map(lambda _: overseen.ask("/healthz").status, range(200))) == {200}
            assert len(list(pool.map(lambda _: overseen.figures(), range(50)))) == 50
    assert sorted(looks) == ["figures", "probe"]


def test_a_store_that_can_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError(5, "Input/output error")

    with Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK)) as store:
        monkeypatch.setattr(store, "probe", fail)
        monkeypatch.setattr(store, "figures", fail)
        with serving(store, ALL) as address:
            overseen = Overseen(store, address)
            found = overseen.ask("/healthz")
            assert (found.status, found.body) == (503, b"failing\n")
            figures = overseen.figures()
            assert figures["blocksync_server_store_readable"] == 0
            assert "blocksync_server_objects" not in figures


def test_a_store_that_hangs_is_said_and_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when each request that waits takes a thread: after some of them nothing is answered any more."""
    hangs, goes_on = [], threading.Event()

    def hang() -> int:
        hangs.append(threading.get_ident())
        goes_on.wait()
        return 0

    monkeypatch.setattr("syncer.server.http.kept._PATIENCE_S", 0.05)
    with Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK)) as store:
        monkeypatch.setattr(store, "probe", hang)
        with serving(store, ALL) as address:
            overseen = Overseen(store, address)
            try:
                assert {overseen.ask("/healthz").status for _ in range(20)} == {503}
                assert len(hangs) == 1
            finally:
                goes_on.set()
