"""The way to a repository's store, as options of `blocksync repo` and a linked root say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from syncer.cli.limits import Limits
from syncer.cli.registry.repositories import KeptKey
from syncer.cli.repo.place import Place
from syncer.errors import SyncerError, UsageError
from syncer.remote.repository.access import Access
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.opening import Kept
from syncer.remote.stores.limited import LimitedStore
from syncer.remote.stores.port import BlobStore
from tests.fakes.httpscript import CERTIFICATE, Answer, Arrived, serving

KEPT = Kept(
    repository=bytes(16), master=bytes(32), device=bytes(16), config=Config(grid=65536, chunks=(1, 2, 3), made_s=0)
)


@pytest.fixture(params=["https", "http"])
def swift(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """A Swift whose certificate nobody trusts who is not told to: the variables that lead to it.

    By either scheme one signs in there; the account has TLS.
    """

    def answer(arrived: Arrived) -> Answer:
        if arrived.path == "/auth/v1.0":
            return Answer(200, headers={"X-Auth-Token": "t", "X-Storage-Url": f"{script.url}/v1/AUTH_a"})
        return Answer(204, headers={"X-Container-Object-Count": "0"})

    with serving(answer, tls=True) as script, serving(answer) as plain:
        door = script if request.param == "https" else plain
        yield {"ST_AUTH": f"{door.url}/auth/v1.0", "ST_USER": "a:b", "ST_KEY": "key"}


def opened(store: BlobStore) -> str:
    async def run() -> str:
        try:
            return (await store.open()).text
        finally:
            await store.close()

    return trio.run(run)


def url_of(variables: dict[str, str]) -> str:
    return f"swift://{variables['ST_AUTH'].split('/')[2]}/box"


def test_authorities_that_are_given_are_trusted_and_no_others(
    swift: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in swift.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SyncerError, match="certificate"):
        opened(Place(url=url_of(swift)).store())
    assert "box" in opened(Place(url=url_of(swift), ca_file=str(CERTIFICATE)).store())


def test_an_option_says_more_than_the_environment(
    swift: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {**swift, "OS_CACERT": str(tmp_path / "others.pem")}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"others\.pem"):
        opened(Place(url=url_of(swift)).store())
    assert "box" in opened(Place(url=url_of(swift), ca_file=str(CERTIFICATE)).store())


def test_what_led_a_root_to_the_store_leads_its_verbs_there(swift: dict[str, str]) -> None:
    """Neither variables nor options: a job of cron has none."""
    key = KeptKey(access=Access(kept=KEPT, environment=swift), ca_file=str(CERTIFICATE))
    assert "box" in opened(Place(url=url_of(swift)).store(key))


@pytest.mark.parametrize("limits", [Limits(up=1000), Limits(down=1000)])
def test_a_limit_holds_for_the_store_by_either_way(limits: Limits, tmp_path: Path) -> None:
    place = Place(url=f"file://{tmp_path}", limits=limits)
    key = KeptKey(access=Access(kept=KEPT), ca_file=None)
    assert isinstance(place.store(), LimitedStore)
    assert isinstance(place.store(key), LimitedStore)
    assert not isinstance(Place(url=place.url).store(), LimitedStore)


def test_one_place_has_one_name(tmp_path: Path) -> None:
    assert Place(url=f"file://localhost{tmp_path}/").canonical_url == f"file://{tmp_path}"
    with pytest.raises(UsageError, match="expected one of swift://"):
        _ = Place(url="here").canonical_url
