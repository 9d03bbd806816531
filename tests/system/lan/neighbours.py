"""Neighbours that die, lie, corrupt, stall; and what happens to them while they are at it."""

from __future__ import annotations

from typing import Any

from tests.kit.program import SHARE_BLOCK, Machine, end, has_peer, is_there
from tests.system.lan.trial import MIB, SLOW_MBIT_S, Ground, damaged, has, on_volume, put, put_away

SLOW_UPLOAD = 'upload_limit = "2MB"'


def _serves(told: dict[str, Any]) -> bool:
    return bool(told["figures"] and told["figures"]["blocks_to_peers"])


def _gets(told: dict[str, Any]) -> bool:
    return bool(told["figures"] and told["figures"]["blocks_from_peers"])


def _second_seed(one: Machine, two: Machine) -> None:
    """The second one has all, too, and both know of each other."""
    two("reconcile", two.root)
    two.watch()
    one.until("peers", has_peer)


def the_peer_that_serves_is_killed_in_mid_transfer(ground: Ground) -> None:
    """SIGKILL: what it owes comes from another one."""
    one, two, three = ground.machines(3)
    one.settings(SLOW_UPLOAD)
    two.settings(SLOW_UPLOAD)
    files = put(one, image=8 * MIB)
    one("reconcile", one.root)
    daemon = one.watch()
    one.until("peers", is_there)
    _second_seed(one, two)
    ground.server.shape(SLOW_MBIT_S)
    asks = three.begin("reconcile", three.root)
    one.until("peers", _serves)
    one.node.kill(daemon)
    summary = end(asks)
    assert has(three, files)
    assert summary["blocks_from_peers"] > 0


def the_only_peer_is_killed_in_mid_transfer(ground: Ground) -> None:
    """The rest comes from the server."""
    one, two = ground.machines(2)
    one.settings(SLOW_UPLOAD)
    files = put(one, image=6 * MIB)
    one("reconcile", one.root)
    daemon = one.watch()
    one.until("peers", is_there)
    ground.server.shape(SLOW_MBIT_S)
    asks = two.begin("reconcile", two.root)
    one.until("peers", _serves)
    one.node.kill(daemon)
    summary = end(asks)
    assert has(two, files)
    assert summary["blocks_received"] > 0


def who_downloads_is_killed_and_started_again(ground: Ground) -> None:
    """SIGKILL in mid-transfer, then a new start: complete, and no byte is wrong."""
    one, two = ground.machines(2)
    one.settings(SLOW_UPLOAD)
    files = ground.seed(one, image=6 * MIB, other=2 * MIB)
    daemon = two.watch()
    two.until("peers", _gets)
    two.node.kill(daemon)
    two("reconcile", two.root)
    assert has(two, files)
    assert not [path for path in two.root.iterdir() if path.is_file() and path.name not in files]


def _beside_a_good_one(ground: Ground, fault: str) -> tuple[Machine, Machine, dict[str, bytes]]:
    """The peer with a fault, who pulls from it and from a good one, and what it is to have in the end."""
    good, bad, three = ground.machines(3)
    good.settings(SLOW_UPLOAD)  # alone it would have given all before the other one was asked
    files = put(good, image=6 * MIB)
    good("reconcile", good.root)
    good.watch()
    good.until("peers", is_there)
    bad("reconcile", bad.root)
    bad.watch(crooked=[fault])
    good.until("peers", has_peer)
    ground.server.shape(SLOW_MBIT_S)
    three.watch()
    return bad, three, files


def a_peer_that_corrupts_is_banned(ground: Ground) -> None:
    """Every block is right in the end; nothing is taken from it for an hour, and the log and `peers` say so."""
    bad, three, files = _beside_a_good_one(ground, "corrupt")
    told = three.until("peers", lambda told: has(three, files) and told["figures"]["bans"])
    assert [ban["address"] for ban in told["figures"]["bans"]] == [bad.node.link_local]
    assert told["figures"]["blocks_from_peers"] > 0
    assert "peer.banned" in three.log.read_text()
    assert "banned for 60 min" in three("peers")
    assert three.json("peers", "unban")["lifted"] == 1


def a_peer_that_lies_is_ignored(ground: Ground) -> None:
    """It says that it has all, and has nothing: the others are asked."""
    _, three, files = _beside_a_good_one(ground, "lie")
    told = three.until("peers", lambda _: has(three, files))
    assert told["figures"]["lacked"] > 0
    assert told["figures"]["blocks_from_peers"] > 0


def a_peer_that_stalls_is_let_go(ground: Ground) -> None:
    """It takes requests and sends nothing: that is noticed, and what it owes comes from the others."""
    bad, three, files = _beside_a_good_one(ground, "stall")
    told = three.until("peers", lambda _: has(three, files))
    _was_let_go(three, told)
    assert told["figures"]["blocks_from_peers"] > 0
    gave = {peer["addresses"][0] for peer in told["figures"]["peers"] if peer["blocks"]}
    assert bad.node.link_local not in gave


def _was_let_go(machine: Machine, told: dict[str, Any]) -> None:
    """A peer stalled, and the log says so. It is nobody's enemy for that."""
    assert told["figures"]["stalls"] > 0
    lines = [line for line in machine.log.read_text().splitlines() if "peer.let_go" in line]
    assert lines
    assert all("stalled" in line for line in lines), lines
    assert not told["figures"]["bans"]


def _alone(ground: Ground, fault: str) -> dict[str, Any]:
    bad, two = ground.machines(2)
    files = put(bad, image=3 * MIB)
    bad("reconcile", bad.root)
    bad.watch(crooked=[fault])
    bad.until("peers", is_there)
    ground.server.shape(SLOW_MBIT_S)
    summary = two.json("reconcile", two.root)
    assert has(two, files)
    return summary


def a_corrupting_peer_alone(ground: Ground) -> None:
    """All comes from the server, and right."""
    assert _alone(ground, "corrupt")["blocks_from_peers"] == 0


def a_lying_peer_alone(ground: Ground) -> None:
    """All comes from the server."""
    assert _alone(ground, "lie")["blocks_from_peers"] == 0


def a_stalling_peer_alone(ground: Ground) -> None:
    """It is let go, and all comes from the server."""
    bad, two = ground.machines(2)
    files = put(bad, image=3 * MIB)
    bad("reconcile", bad.root)
    bad.watch(crooked=["stall"])
    bad.until("peers", is_there)
    ground.server.shape(SLOW_MBIT_S)
    two.watch()
    told = two.until("peers", lambda _: has(two, files))
    _was_let_go(two, told)
    assert told["figures"]["blocks_from_peers"] == 0


def _damaged_places(data: bytes) -> list[int]:
    """The first bytes of every fourth block."""
    return list(range(0, len(data), 4 * SHARE_BLOCK))


def bytes_that_changed_on_the_disk_of_a_peer_are_never_served(ground: Ground) -> None:
    """The base names blocks that its file has not any more: it says that it lacks them, and is left alone for that."""
    one, two = ground.machines(2)
    files = put(one, image=3 * MIB)
    one("reconcile", one.root)
    one.watch(crooked=["blind"])
    one.until("peers", is_there)
    one.until("status", lambda live: live["phase"] == "idle")
    with (one.root / "image").open("r+b") as image:
        for place in _damaged_places(files["image"]):
            image.seek(place)
            image.write(b"damage!")
    ground.server.shape(SLOW_MBIT_S)
    two.watch()
    told = two.until("peers", lambda _: has(two, files))
    assert told["figures"]["lacked"] >= 3
    assert told["figures"]["mismatches"] == 0
    assert not told["figures"]["bans"]
    assert "peer.ignored" in two.log.read_text()
    assert one.json("peers")["figures"]["accused"] == 0


def a_damaged_volume_of_a_peer(ground: Ground) -> None:
    """What its block directory has is not hashed before it goes out: who asked finds it wrong, and says so."""
    one = on_volume(ground, 1)
    try:
        (two,) = ground.machines(2)[1:]
        files = put(one, image=3 * MIB)
        one("reconcile", one.root)
        one("flush", one.root)
        one.watch()
        one.until("peers", is_there)
        one.until("status", lambda live: live["phase"] == "idle")
        data = files["image"]
        assert damaged(one, [data[place : place + 64] for place in _damaged_places(data)])
        ground.server.shape(SLOW_MBIT_S)
        two.watch()
        told = two.until("peers", lambda _: has(two, files))
        assert told["figures"]["mismatches"] == 1, "who sent one wrong block is asked for no other"
        assert [ban["address"] for ban in told["figures"]["bans"]] == [one.node.link_local]
        accused = one.until("peers", lambda told: told["figures"]["accused"])
        assert accused["figures"]["accused"] == 1
        assert one.log.read_text().count("share.block_damaged") == 1
    finally:
        put_away(one)
