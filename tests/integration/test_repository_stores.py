"""Folders as devices of a repository on real stores: OpenStack Swift, its S3 API, SFTP; and the daemon on one."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from syncer.cli.registry.roots import Registry
from syncer.watch import control
from tests.fakes.httpscript import Answer, Arrived, serving
from tests.integration.sharing import Share, new_share
from tests.integration.syncing import content
from tests.integration.watching import watching
from tests.kit import sshd as ssh
from tests.kit import swift as swifts
from tests.kit.repositories import make_repository
from tests.kit.swift import Swift


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssh.Sshd]:
    with ssh.serving(tmp_path_factory.mktemp("sshd")) as server:
        yield server


VARIABLES = ("ST_AUTH", "ST_USER", "ST_KEY", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Nothing of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith(("OS_", "ST_", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def sign_in(clean: pytest.MonkeyPatch, swift: Swift, user: str = swifts.USER, key: str = swifts.KEY) -> str:
    """The variables of Swift's own sign-in; returns what stands for the server in a URL."""
    clean.setenv("ST_AUTH", f"{swift.url}/auth/v1.0")
    clean.setenv("ST_USER", user)
    clean.setenv("ST_KEY", key)
    return urlsplit(swift.url).netloc


def both_ways(share: Share) -> tuple[Path, Path]:
    """Link two folders, then forget all that led to the store: what was kept is enough."""
    first, second = share.folder("first"), share.folder("second")
    for name in VARIABLES:
        os.environ.pop(name, None)
    share.token_file.unlink()
    (first / "d").mkdir()
    (first / "d/large").write_bytes(os.urandom(500_000))
    share.reconcile(first)
    share.reconcile(second)
    (second / "small").write_bytes(b"small")
    share.reconcile(second)
    share.reconcile(first)
    assert content(first) == content(second)
    assert set(content(first)) == {"d", "d/large", "small"}
    share.at_rest(first, second)
    return first, second


def test_swift(tmp_path: Path, clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], swift: Swift) -> None:
    place = f"swift://{sign_in(clean, swift)}/share/of%20us"
    share = new_share(tmp_path, clean, capsys, place)
    first, _ = both_ways(share)
    rested = share.reconcile(first)["requests"]
    shutil.rmtree(Registry(os.environ).get(os.fsencode(first)).cache)
    assert share.reconcile(first)["requests"] > rested  # what never changes is read once
    checks = {line["subject"]: line for line in share("doctor", first, "--json")}
    assert checks["store"]["level"] == checks["clock"]["level"] == "ok"
    clean.setenv("ST_AUTH", "http://127.0.0.1:9/auth/v1.0")  # another cloud's, of a shell that is used for it
    share.reconcile(first)


def test_a_cloud_of_clouds_yaml_follows_the_file(
    tmp_path: Path, clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], swift: Swift
) -> None:
    def write(key: str) -> None:
        auth = f"{{auth_url: '{swift.url}/auth/v1.0', username: '{swifts.USER}', password: {key}}}"
        (tmp_path / "clouds.yaml").write_text(f"clouds:\n  home:\n    auth_type: v1password\n    auth: {auth}\n")

    write(swifts.KEY)
    share = new_share(tmp_path, clean, capsys, "swift://home/by-cloud")
    first = share.folder("first")
    clean.chdir("/")
    (first / "file").write_bytes(b"content")
    assert share.reconcile(first)["pushed"] == 1
    write("wrong")
    share("reconcile", first, expect=12)
    write(swifts.KEY)
    share.at_rest(first)


def test_a_keystone_gives_tokens_of_a_real_swift_to_a_cloud_of_clouds_yaml(
    tmp_path: Path, clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], swift: Swift
) -> None:
    asked: list[dict[str, Any]] = []

    def keystone(arrived: Arrived) -> Answer:
        if (arrived.method, arrived.path) != ("POST", "/v3/auth/tokens"):
            return Answer(404)
        auth = json.loads(arrived.body or b"")["auth"]
        asked.append(auth)
        if auth["identity"]["password"]["user"]["password"] != "secret":
            return Answer(401, b'{"error": {"message": "The request you have made requires authentication."}}')
        headers = {"X-Auth-User": swifts.USER, "X-Auth-Key": swifts.KEY}
        with urllib.request.urlopen(urllib.request.Request(f"{swift.url}/auth/v1.0", headers=headers)) as reply:
            token, url = reply.headers["X-Auth-Token"], reply.headers["X-Storage-Url"]
        endpoints = [
            {"url": "http://127.0.0.1:9/v1/AUTH_a", "interface": "public", "region": "south", "region_id": "south"},
            {"url": url, "interface": "public", "region": "north", "region_id": "north"},
        ]
        body = {"token": {"catalog": [{"type": "object-store", "endpoints": endpoints}]}}
        return Answer(201, json.dumps(body).encode(), {"X-Subject-Token": token})

    def write(password: str) -> None:
        auth = {
            "auth_url": f"{script.url}/v3", "username": "me", "password": password, "project_name": "ours",
            "user_domain_name": "Default", "project_domain_name": "Default",
        }  # fmt: skip
        (tmp_path / "clouds.yaml").write_text(json.dumps({"clouds": {"home": {"auth": auth, "region_name": "north"}}}))

    with serving(keystone) as script:
        write("secret")
        share = new_share(tmp_path, clean, capsys, "swift://home/by-keystone")
        both_ways(share)
        assert {auth["scope"]["project"]["name"] for auth in asked} == {"ours"}
        write("wrong")
        share("reconcile", tmp_path / "first", expect=12)
        assert "home" in share.err or script.url in share.err
        assert "wrong" not in share.err


def test_an_account_without_room_is_told_and_all_goes_on_when_there_is_some(
    tmp_path: Path, clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], swift: Swift
) -> None:
    quota = swift.account_with_quota(300_000)
    place = f"swift://{sign_in(clean, swift, quota.user, quota.key)}/full"
    share = new_share(tmp_path, clean, capsys, place)
    first, second = share.folder("first"), share.folder("second")
    (first / "small").write_bytes(b"small")
    assert share.reconcile(first)["pushed"] == 1
    (first / "large").write_bytes(os.urandom(2_000_000))
    share("reconcile", first, expect=17)
    assert "quota" in share.err.lower()
    (told,) = share("status", first, "--json")
    assert told["last_cycle"]["exit_code"] == 17
    share.reconcile(second)
    assert content(second) == {"small": b"small"}
    swift.account_with_quota(100_000_000)
    share.reconcile(first)
    share.reconcile(second)
    assert content(second) == content(first)


def test_s3(tmp_path: Path, clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], swift: Swift) -> None:
    sign_in(clean, swift)
    for name, value in swift.s3.items():
        clean.setenv(name, value)
    make_repository(f"swift://{urlsplit(swift.url).netloc}/bucket")  # makes the bucket, too
    both_ways(new_share(tmp_path, clean, capsys, "s3://bucket/prefix"))


def test_two_kinds_of_url_lead_to_one_repository(
    tmp_path: Path, clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], swift: Swift
) -> None:
    for name, value in swift.s3.items():
        clean.setenv(name, value)
    share = new_share(tmp_path, clean, capsys, f"swift://{sign_in(clean, swift)}/by-both")
    first, second = share.folder("first"), tmp_path / "second"
    second.mkdir()
    share("link", second, "s3://by-both", "--password-file", share.token_file)
    (first / "file").write_bytes(b"content")
    share.reconcile(first)
    assert share.reconcile(second)["pulled"] == 1
    (second / "file").write_bytes(b"edited by the other way")
    share.reconcile(second)
    share.reconcile(first)
    assert content(first) == content(second) == {"file": b"edited by the other way"}
    share.at_rest(first, second)


def test_sftp(tmp_path: Path, clean: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sshd: ssh.Sshd) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(
        f"Host box\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User root\n  IdentityFile {sshd.folder}/client\n"
        f"  UserKnownHostsFile {sshd.folder}/known_hosts\n"
    )
    both_ways(new_share(tmp_path, clean, capsys, f"sftp://box{tmp_path}/repository"))


def test_the_daemon_follows_a_directory_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    share = new_share(tmp_path, monkeypatch, capsys)
    one, two = share.folder("one"), share.folder("two")
    with watching(tmp_path / "watch.log") as daemon:
        for root in (one, two):
            assert daemon.until_root(root, "idle").following == "files"
        (one / "anchor").write_bytes(b"no side is ever empty")
        (one / "file").write_bytes(b"first")
        daemon.until_there(two / "file", b"first")
        (two / "file").write_bytes(b"second")
        daemon.until_there(one / "file", b"second")
        (two / "file").unlink()
        daemon.until(lambda _: not (one / "file").exists())
        daemon.until(lambda live: all(root.phase == "idle" and not root.dirty for root in live.roots))
        assert daemon.stop() == 0
    share.at_rest(one, two)


def test_the_daemon_waits_for_a_place_that_is_away_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    share = new_share(tmp_path, monkeypatch, capsys)
    one, place, away = share.folder("one"), tmp_path / "repository", tmp_path / "away"
    place.rename(away)
    (one / "file").write_bytes(b"while it was away")
    with watching(tmp_path / "watch.log") as daemon:
        found = daemon.until_root(one, "retrying")
        assert str(place) in found.detail
        away.rename(place)
        control.sync(daemon.socket, found.uuid)
        daemon.until_root(one, "idle")
        assert daemon.stop() == 0
    share.at_rest(one)
