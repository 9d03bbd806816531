"""Settings of accounts and containers over HTTP: metadata, quotas, versioning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncer.server.folder import ServerFolder
from syncer.server.store.store import Store
from tests.integration.live_server import BLOCK, Client, ServerProcess, server_in_thread, serving

TOKENS = "token-alice alice 1MiB\ntoken-bob bob\n"
STREAM = "application/octet-stream"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_in_thread(tmp_path_factory.mktemp("server") / "s", TOKENS) as found:
        yield found


@pytest.fixture
def alice(address: str) -> Iterator[Client]:
    client = Client(address)
    yield client
    for row in client("GET", "?format=json").json:
        client("DELETE", f"/{row['name']}?delimiter=/")
        client("DELETE", f"/{row['name']}")
    client("POST", "")  # no metadata
    client.close()


def test_an_account_has_metadata(alice: Client) -> None:
    assert alice("POST", "?update", X_Account_Meta_One="1", X_Account_Meta_Two="zw%C3%B6lf").status == 202
    assert alice("POST", "?update", X_Account_Meta_One="").status == 202
    head = alice("HEAD", "")
    assert head.headers["X-Account-Meta-Two"] == "zw%C3%B6lf"
    assert "X-Account-Meta-One" not in head.headers
    assert alice("POST", "", X_Account_Meta_Three="3").status == 202
    head = alice("HEAD", "")
    assert "X-Account-Meta-Two" not in head.headers
    assert head.headers["X-Account-Meta-Three"] == "3"


def test_a_container_has_metadata_from_its_making_on(alice: Client) -> None:
    assert alice("PUT", "/c", X_Container_Meta_A="1").status == 201
    assert alice("PUT", "/c", X_Container_Meta_B="2").status == 202
    assert alice("POST", "/c?update", X_Container_Meta_A="").status == 202
    head = alice("HEAD", "/c")
    assert head.headers["X-Container-Meta-B"] == "2"
    assert "X-Container-Meta-A" not in head.headers
    assert alice("POST", "/c").status == 202
    assert "X-Container-Meta-B" not in alice("HEAD", "/c").headers


def test_settings_of_a_deleted_container_are_gone(alice: Client) -> None:
    alice("PUT", "/c", X_Container_Meta_A="1", X_Container_Policy_Quota="7")
    alice("DELETE", "/c")
    alice("PUT", "/c")
    head = alice("HEAD", "/c")
    assert "X-Container-Meta-A" not in head.headers
    assert head.headers["X-Container-Policy-Quota"] == "0"


def test_blocks_are_not_mixed_with_settings(alice: Client) -> None:
    """Breaks when a POST of blocks without `update` wipes the container's metadata, as it does on Synnefo."""
    alice("PUT", "/c", X_Container_Meta_A="1")
    for path, more in (("/c", {}), ("/c?update", {"X_Container_Meta_B": "2"})):
        assert alice("POST", path, b"x", Content_Type=STREAM, **more).status == 400
    assert alice("HEAD", "/c").headers["X-Container-Meta-A"] == "1"


def test_a_containers_quota_is_told_in_pithos_words(alice: Client) -> None:
    alice("PUT", "/c", X_Container_Policy_Quota="10")
    assert alice("PUT", "/c/f", b"x" * 10).status == 201
    full = alice("PUT", "/c/g", b"y")
    assert (full.status, full.fault) == (413, "requestEntityTooLarge")
    assert full.json["requestEntityTooLarge"]["message"] == (
        "Quota error: Container quota exceeded: limit: 10, usage: 11"
    )
    assert alice("PUT", "/c/f", b"x" * 9).status == 201  # less is always possible
    assert alice("PUT", "/c/g", b"y").status == 201


def test_every_way_to_grow_knows_the_quota(alice: Client) -> None:
    alice("PUT", "/from")
    for name in ("a", "d", "d/1", "d/2"):
        alice("PUT", f"/from/{name}", b"x" * 6)
    alice("PUT", "/c", X_Container_Policy_Quota="10")
    alice("PUT", "/c/f", b"x" * 6)
    ids = alice.upload("from", b"z" * 6)
    none: dict[str, str] = {"Content_Length": "0"}
    refused = [
        alice("PUT", "/c/g", b"z" * 5),
        alice.put_hashmap("/c/g", 6, ids),
        alice.put_hashmap("/c/g", 6, ["1" * 64]),  # before blocks are asked for
        alice("PUT", "/c/g", **{"X-Copy-From": "/from/a"}, **none),
        alice("COPY", "/from/a", Destination="/c/g"),
        alice("MOVE", "/from/a", Destination="/c/g"),
        alice("MOVE", "/from/d?delimiter=/", Destination="/c/g"),
        alice("COPY", "/from/d?delimiter=/", Destination="/c/g"),
        alice("POST", "/c/f?update", b"z" * 5, Content_Type=STREAM, Content_Range="bytes */*"),
        alice("POST", "/c/f?update", Content_Range="bytes 5-10/*", X_Source_Object="/from/a"),
    ]
    assert [reply.status for reply in refused] == [413] * len(refused)
    assert alice.names("c") == ["f"]
    assert len(alice.names("from")) == 4
    assert alice("MOVE", "/c/f", Destination="/c/g").status == 201
    assert alice("POST", "/c/g?update", b"z" * 4, Content_Type=STREAM, Content_Range="bytes */*").status == 204


def test_an_accounts_quota_comes_from_the_token_file(alice: Client, address: str) -> None:
    assert alice("HEAD", "").headers["X-Account-Policy-Quota"] == str(1 << 20)
    alice("PUT", "/c")
    alice("PUT", "/d")
    alice("PUT", "/c/f", bytes(1 << 19))
    over = alice("PUT", "/d/f", bytes((1 << 19) + 1))
    assert over.status == 413
    assert over.json["fault"]["message"] == "Resource Limit Exceeded for your account."
    assert over.json["fault"]["details"].endswith("Available: 524288, Requested: 524289")
    assert alice("MOVE", "/c/f", Destination="/d/f").status == 201  # the account does not grow
    assert alice("COPY", "/d/f", Destination="/d/g").status == 201
    assert alice("COPY", "/d/f", Destination="/d/h").status == 413
    bob = Client(address, "token-bob", "bob")
    assert bob("HEAD", "").headers["X-Account-Policy-Quota"] == "0"
    bob.close()


def test_what_exceeds_a_quota_is_not_stored(tmp_path: Path) -> None:
    """Breaks when the body is taken before the quota is looked at: a full account would still fill the disk."""
    with Store(ServerFolder.open(str(tmp_path / "s"), block_size=BLOCK)) as store, serving(store, TOKENS) as found:
        client = Client(found)
        client("PUT", "/c")
        client("PUT", "/c/f", b"x")
        assert client("PUT", "/c/g", b"q" * (1 << 20)).status == 413  # its length is known
        assert client("PUT", "/c/g", bytes(range(256)) * (1 << 14)).status == 413
        assert store._blocks.statistics().blocks == 1
        client.close()


def test_a_quota_that_is_taken_out_of_the_file_is_gone(tmp_path: Path) -> None:
    for tokens, quota in (("token-alice alice 10MB\n", "10000000"), ("token-alice alice\n", "0")):
        with ServerProcess.serve(tmp_path / "s", tokens=tokens) as server:
            client = server.client()
            client("PUT", "/c")
            assert client("HEAD", "").headers["X-Account-Policy-Quota"] == quota


def test_without_versioning_older_versions_go(alice: Client) -> None:
    alice("PUT", "/c", X_Container_Policy_Versioning="none")
    assert alice("HEAD", "/c").headers["X-Container-Policy-Versioning"] == "none"
    versions = [alice("PUT", "/c/f", b"%d" % number).version for number in range(3)]
    listed = [version for version, _ in alice("GET", "/c/f?version=list").json["versions"]]
    assert listed == versions[2:]
    assert alice("GET", f"/c/f?version={versions[0]}").status == 404
    assert alice("GET", "/c/f").body == b"2"
    assert alice("DELETE", "/c/f").status == 204
    assert alice("GET", "/c/f?version=list").json == {"versions": []}
    assert alice("PUT", "/c/f", b"again").status == 201


def test_versioning_that_is_switched_off_forgets_with_the_next_version(alice: Client) -> None:
    alice("PUT", "/c")
    alice("PUT", "/c/f", b"1")
    alice("PUT", "/c/g", b"1")
    alice("POST", "/c?update", X_Container_Policy_Versioning="none")
    alice("PUT", "/c/f", bytes(2 * BLOCK))
    alice("MOVE", "/c/g", Destination="/c/h")
    assert len(alice("GET", "/c/f?version=list").json["versions"]) == 1
    assert alice("GET", "/c/h").body == b"1"
