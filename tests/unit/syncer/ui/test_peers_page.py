"""Peers on the page: what `peers --json` tells, and lifting a ban."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from syncer.peer.exchange.figures import BanFigures, Figures, PeerFigures, UploadFigures
from syncer.ui.ports import Ran
from syncer.ui.views.peers import view_peers
from syncer.watch.lan import PeersLive, ShareLive
from tests.unit.syncer.ui.conftest import Page

ID = "0123456789abcdef"
PEER = PeerFigures(
    share="1", peer=ID, link="eth0", addresses=("192.0.2.7:4000",), heard_s=3.0, is_connected=True, bytes_per_s=2e6,
    blocks=5, bytes=5 * 65536, wasted_bytes=0, load=1,
)  # fmt: skip
FIGURES = Figures(
    port=4000, links=("eth0",), peers=(PEER,), bans=(BanFigures(peer=ID, address="192.0.2.9", for_s=600.0),),
    frames_in={}, frames_out={}, drops={}, tokens_asked=0, tokens_answered=0, latency=(), latency_ends_s=(),
    latency_s=0.0, blocks_from_peers=5, bytes_from_peers=5 * 65536, wasted_bytes=0, blocks_to_peers=1,
    bytes_to_peers=65536, busy=0, stalls=0, lacked=0, broadcasts_held=0,
    uploads=(UploadFigures(peer=ID, address="192.0.2.8", blocks=1, bytes=65536),),
)  # fmt: skip
SHARES = [ShareLive(root="/home/me/<b>photos", uuid="1", off=""), ShareLive(root="/x", uuid="2", off="by a person")]


def line(live: PeersLive) -> bytes:
    """As the command prints it."""
    return msgspec.json.encode({"type": "peers", "version": 1, **msgspec.to_builtins(live)})


def test_what_the_daemon_tells_is_shown() -> None:
    view = view_peers(line(PeersLive(off="", shares=SHARES, figures=FIGURES)))
    (peer,) = view.peers
    assert (peer.peer, peer.link, peer.address, peer.heard) == ("01234567", "eth0", "192.0.2.7:4000", "3 s ago")
    assert (peer.rate, peer.got, peer.is_connected) == ("1.91 MiB/s", "5 blocks (320 KiB)", True)
    assert view.exchanged == "5 blocks (320 KiB) from peers, 1 block (64 KiB) to peers"
    assert view.uploads == ("01234567 192.0.2.8: 1 block (64 KiB)",)
    assert [ban.left for ban in view.bans] == ["10 min"]


def test_a_daemon_that_is_not_on_the_network_says_why() -> None:
    view = view_peers(line(PeersLive(off="the daemon was started without them", shares=[], figures=None)))
    assert view.off == "the daemon was started without them"
    assert not view.peers


def test_names_are_text_and_a_ban_is_lifted_by_the_command(page: Page) -> None:
    async def scenario() -> None:
        told = line(PeersLive(off="", shares=SHARES, figures=FIGURES))
        page.program.on_lan = told
        page.program.outcomes += [Ran(exit_code=0, lines=(), message="")]
        browser = await page.browser()
        text = (await browser.get("/peers")).text
        assert "&lt;b&gt;photos" in text
        assert "off: <bdi>by a person" in text
        await browser.post("/peers/unban", {"who": ID})
        assert page.program.ran[-1][0] == [b"peers", b"unban", b"--json", b"--", ID.encode()]

    asyncio.run(scenario())


def test_a_daemon_that_does_not_answer_is_told(page: Page) -> None:
    async def scenario() -> None:
        answer = await (await page.browser()).get("/peers")
        assert answer.status == 503
        assert "no `blocksync watch` is running" in answer.text

    asyncio.run(scenario())


@pytest.mark.parametrize("who", ["", "--all", "a b", "é"])
def test_who_is_no_id_is_not_asked_for(page: Page, who: str) -> None:
    async def scenario() -> None:
        browser = await page.browser()
        assert (await browser.post("/peers/unban", {"who": who})).status == 404
        assert not page.program.ran

    asyncio.run(scenario())
