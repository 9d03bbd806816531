"""`link` with kamaki's configuration, against a real server and a server with TLS."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncer.protocol.astakos import Access
from syncer.remote.kamaki import discovery
from tests.fakes.pithos import FakePithos
from tests.integration.live_server import server_in_thread
from tests.integration.syncing import Sync, content, set_home

TLS = Path(__file__).parents[1] / "fakes" / "tls"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_in_thread(tmp_path_factory.mktemp("server") / "s") as found:
        yield found


@pytest.fixture
def sync(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sync:
    set_home(tmp_path, monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KAMAKI_CONFIG", raising=False)
    monkeypatch.delenv("BLOCKSYNC_TOKEN", raising=False)
    return Sync(tmp_path, f"http://{address}", tmp_path / "unused", capsys)


def configure(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def home(address: str, more: str = "") -> str:
    return (
        "[global]\ndefault_cloud = home\n"
        f'[cloud "home"]\nurl = http://{address}/identity/v2.0\ntoken = token-alice\npithos_container = c1\n{more}'
    )


def test_each_way_to_name_a_cloud_finds_its_container(sync: Sync, address: str, tmp_path: Path) -> None:
    configure(tmp_path / ".kamakirc", home(address))
    ways: list[list[str]] = [
        ["kamaki://home/c1"],
        ["kamaki://home"],
        ["kamaki:///c1"],
        ["--cloud", "home"],
        ["--cloud", "home", "c1"],
        ["--cloud", "home", "/c1"],
    ]
    for number, way in enumerate(ways):
        root = tmp_path / f"r{number}"
        root.mkdir()
        (root / str(number)).write_text("x")
        sync("link", root, *way)
        assert f"pithos+http://{address}/v1/alice/c1" in sync.err
        sync.reconcile(root)
    last = tmp_path / "r0"
    sync.reconcile(last)
    assert set(content(last)) == {str(number) for number in range(len(ways))}


def test_the_token_is_kept_private(sync: Sync, address: str, tmp_path: Path) -> None:
    configure(tmp_path / ".kamakirc", home(address), 0o644)
    root = tmp_path / "r"
    root.mkdir()
    sync("link", root, "kamaki://home/c2")
    assert "others can read it" in sync.err
    assert "token-alice" not in sync.err + sync.out
    holders = [
        path for path in (tmp_path / "state").rglob("*") if path.is_file() and b"token-alice" in path.read_bytes()
    ]
    assert [path.name for path in holders] == ["token"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in holders)


def test_the_variable_names_another_file(
    sync: Sync, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path / ".kamakirc", "[global]\n")
    configure(tmp_path / "other", home(address))
    monkeypatch.setenv("KAMAKI_CONFIG", str(tmp_path / "other"))
    root = tmp_path / "r"
    root.mkdir()
    sync("link", root, "kamaki://home")


def test_what_is_wrong_is_named_with_its_remedy(sync: Sync, address: str, tmp_path: Path) -> None:
    root = tmp_path / "r"
    root.mkdir()

    def refused(*arguments: str, expect: int) -> str:
        sync("link", root, *arguments, expect=expect)
        assert "SECRET" not in sync.err
        return sync.err

    assert "KAMAKI_CONFIG" in refused("kamaki://home/c", expect=10)
    assert "--cloud" in refused(expect=2)
    rc = tmp_path / ".kamakirc"
    configure(rc, home(address))
    assert str(rc) in refused("kamaki://away/c", expect=2)
    assert "empty segment" in refused("kamaki://home/c/a//b", expect=2)
    assert "--token-file" in refused("kamaki://home/c", "--token-file", "t", expect=2)
    assert "--cloud" in refused(f"pithos+http://{address}/v1/alice/c", "--cloud", "home", expect=2)
    configure(rc, home(address).replace("token-alice", "SECRET"))
    assert "token" in refused("kamaki://home/c", expect=12)
    configure(rc, home(address).replace("/identity/v2.0", "/v1/alice/c"))
    assert "authentication URL" in refused("kamaki://home/c", expect=13)
    configure(rc, '[cloud "home"]\ntoken = SECRET\npithos_url = http://h/v1\n')
    assert "url is missing" in refused("kamaki://home/c", expect=2)
    configure(rc, home("127.0.0.1:9"))
    refused("kamaki://home/c", expect=13)


def test_authorities_of_the_configuration_are_trusted_and_remembered(sync: Sync, tmp_path: Path) -> None:
    """Discovery is left out: with the storage's URL, token and account all is said."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    with FakePithos(block_size=4096, tls=context) as server:
        base, account, _ = server.url().removeprefix("pithos+http:").rsplit("/", 2)
        text = f'[cloud "home"]\npithos_url = https:{base}\npithos_token = {server.token}\npithos_uuid = {account}\n'
        rc = tmp_path / ".kamakirc"
        root = tmp_path / "r"
        root.mkdir()
        (root / "f").write_text("x")
        configure(rc, text)
        sync("link", root, "kamaki://home/c", expect=13)
        assert "certificate verify failed" in sync.err
        configure(rc, text + f"ca_certs = {tmp_path / 'none.crt'}\n")
        sync("link", root, "kamaki://home/c", expect=2)
        for number, more in enumerate((f"ca_certs = {os.path.relpath(TLS / 'server.pem')}\n", "ignore_ssl = on\n")):
            configure(rc, text + more)
            sync("link", root, f"kamaki://home/c{number}", "--relink")
            assert ("ignore_ssl is on" in sync.err) == bool(number)
            sync.reconcile(root)


def test_a_server_cannot_lead_a_token_out_of_tls(sync: Sync, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    async def ask(*_: object) -> Access:
        return Access(account="a", storage_url="http://h/v1")

    monkeypatch.setattr(discovery, "_ask", ask)
    configure(tmp_path / ".kamakirc", '[cloud "home"]\nurl = https://h/identity/v2.0\ntoken = t\n')
    root = tmp_path / "r"
    root.mkdir()
    sync("link", root, "kamaki://home/c", expect=2)
    assert "without TLS" in sync.err
