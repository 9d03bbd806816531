"""Who is not of the share, and who is of it and wants more: what they learn, get, and cost."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from blockfs.blocks.ids import BlockId
from syncer.peer.links.links import READ_PER_S, USELESS
from syncer.peer.wire.keys import EPOCH_S
from syncer.peer.wire.messages import Ping
from tests.kit.flood import ETHERTYPE, LONG, SHORT, addressed, flooding, forged, heard_from, made_up
from tests.kit.insider import Insider, dialled, key_of
from tests.kit.netns import INTERFACE, PATIENCE_S, Frame, Node
from tests.kit.peering import name
from tests.kit.program import BLOCKSYNC, SHARE_BLOCK, Machine, has_peer, is_there
from tests.system.lan.trial import MIB, SLOW_MBIT_S, Ground, has, pulled, put

FLOOD_FRAMES = 1_000_000
EACH_AT_ONCE, EACH_PER_S = 256, 500
"""Frames of one sender that reach a cipher: docs/design/peer-protocol.md, "What a flood can take"."""

SENDER = slice(16, 32)
WHOHAS, IHAVE = 1, 2
_LISTENS = "0A"


def _names(data: bytes) -> list[BlockId]:
    return [name(data[at : at + SHARE_BLOCK].rstrip(b"\0")) for at in range(0, len(data), SHARE_BLOCK)]


def _figures(machine: Machine) -> dict[str, Any]:
    return dict(machine.json("peers")["figures"])


def a_peer_of_another_share(ground: Ground) -> None:
    """It wants blocks that another share's peer has, too: it learns nothing of that, and gets nothing."""
    (one,) = ground.machines(1)
    files = ground.seed(one, image=2 * MIB)
    two, three = _others(ground)
    (three.root / "image").write_bytes(files["image"])
    three("reconcile", three.root)
    summary = two.json("reconcile", two.root)
    assert has(two, files)
    assert summary["blocks_from_peers"] == 0
    figures = _figures(one)
    assert figures["blocks_to_peers"] == 0
    assert "ihave" not in figures["frames_out"]
    assert figures["peers"] == []
    assert figures["drops"]["hint"] > 0


def _others(ground: Ground) -> list[Machine]:
    """Two machines of another share of the same account."""
    nodes = ground.village.lan.nodes[2:4]
    return [
        Machine(node, ground.village.site, f"{ground.name}-other", home=ground.home / f"m{node.number}")
        for node in nodes
    ]


def a_member_of_two_shares(ground: Ground) -> None:
    """Who proves the key of one of a machine's shares is not told of blocks of the other, and does not get them."""
    (one,) = ground.machines(1)
    second = one.node.home / "second"
    second.mkdir()
    one.link(second, f"{ground.name}-other")
    ours, theirs = put(one, secret=4 * SHARE_BLOCK)["secret"], os.urandom(4 * SHARE_BLOCK)
    (second / "open").write_bytes(theirs)
    one("reconcile")
    one.watch()
    port = one.until("peers", is_there)["figures"]["port"]
    asker = ground.village.lan.nodes[2]
    for root, has_it, has_not in ((one.root, ours, theirs), (second, theirs, ours)):
        with dialled(asker, one.node, port) as connection:
            insider = Insider(connection, key_of(one, root))
            assert insider.offered(_names(has_it) + _names(has_not)) == [True] * 4 + [False] * 4
            assert not insider.gets(_names(has_not)[0])
            assert insider.gets(_names(has_it)[0])


def what_is_not_of_the_share_yet(ground: Ground) -> None:
    """Files that are ignored, and files that could not be pushed yet, are in the folder and not in the share."""
    (one,) = ground.machines(1)
    (one.root / ".blocksyncignore").write_text("*.private\n")
    private, open_to_all = os.urandom(SHARE_BLOCK), os.urandom(SHARE_BLOCK)
    (one.root / "a.private").write_bytes(private)
    (one.root / "b").write_bytes(open_to_all)
    one("reconcile", one.root)
    one.watch()
    port = one.until("peers", is_there)["figures"]["port"]
    one.until("status", lambda live: live["phase"] == "idle")
    ground.server.link_down()
    try:
        later = os.urandom(SHARE_BLOCK)
        (one.root / "later").write_bytes(later)
        with dialled(ground.village.lan.nodes[2], one.node, port) as connection:
            insider = Insider(connection, key_of(one))
            ids = [*_names(private), *_names(open_to_all), *_names(later)]
            assert insider.offered(ids) == [False, True, False]
            assert [insider.gets(each) for each in ids] == [False, True, False]
    finally:
        ground.server.link_up()


def a_volume_that_holds_more_than_the_share(ground: Ground) -> None:
    """All its files are of one block directory; peers get the blocks of the share alone."""
    _holds_more(ground, SHARE_BLOCK)


def a_volume_of_smaller_blocks_that_holds_more_than_the_share(ground: Ground) -> None:
    """The same where each block of the share is put together of the volume's; these themselves are nobody's."""
    _holds_more(ground, SHARE_BLOCK // 4)


def _holds_more(ground: Ground, block_size: int) -> None:
    volume = ground.home / "volume"
    point = ground.home / "mounted"
    point.mkdir()
    node = ground.village.lan.nodes[1]
    node.run(BLOCKSYNC, "init", f"--block-size={block_size >> 10}KiB", volume)
    node.run(BLOCKSYNC, "mount", volume, point)
    try:
        one = Machine(node, ground.village.site, ground.name, root=point, home=ground.home / "m2")
        (point / ".blocksyncignore").write_text("*.private\n")
        private, open_to_all = os.urandom(SHARE_BLOCK), os.urandom(SHARE_BLOCK)
        (point / "a.private").write_bytes(private)
        (point / "b").write_bytes(open_to_all)
        one("reconcile", one.root)
        one.watch()
        port = one.until("peers", is_there)["figures"]["port"]
        with dialled(ground.village.lan.nodes[2], one.node, port) as connection:
            insider = Insider(connection, key_of(one))
            ids = [*_names(private), *_names(open_to_all)]
            assert insider.offered(ids) == [False, True]
            assert [insider.gets(each) for each in ids] == [False, True]
            if block_size < SHARE_BLOCK:
                pieces = [name(data[:block_size]) for data in (private, open_to_all)]
                assert insider.offered(pieces) == [False, False]
    finally:
        node.namespace.kill_all()
        subprocess.run(["umount", "-l", point], check=True)


def _send(node: Node, frames: list[bytes]) -> None:
    with node.inside():
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with made:
        made.bind((INTERFACE, 0))
        for frame in frames:
            made.send(frame)


def _ours(frames: list[Frame], kind: int, node: Node) -> list[bytes]:
    return [
        told.data for told in frames if told.ethertype == ETHERTYPE and told.data[18] == kind and told.port == node.port
    ]


def frames_that_are_sent_again(ground: Ground) -> None:
    """A question that a stranger repeats gets no second answer."""
    one, two = ground.machines(2)
    files = ground.seed(one, image=2 * MIB)
    with ground.village.lan.capture() as capture:
        pulled(two, files)
        questions = _ours(capture.frames(), WHOHAS, two.node)
        assert questions
        before = _figures(one)
        again = 200
        _send(ground.village.lan.nodes[4], questions * again)
        expected = before["drops"].get("replay", 0) + len(questions) * again
        after = one.until("peers", lambda told: told["figures"]["drops"].get("replay", 0) >= expected)["figures"]
        assert after["frames_out"] == before["frames_out"]
        assert not _ours(capture.frames(), IHAVE, one.node)


def a_flood(ground: Ground) -> None:
    """A million frames as fast as this machine sends them: few are read, fewer deciphered, a sync goes on meanwhile.

    Of all that who has no key can send: noise, shares that are made up, frames that were heard, and such frames with
    another counter and body, which are right up to the tag. What a frame costs: `tests/unit/syncer/peer/
    test_receiving.py`. The share of a core is measured: `python -m benchmarks lan flood`, where 25 % is the target.
    """
    one, two, three = ground.machines(3)
    with ground.village.lan.capture() as capture:
        files = ground.seed(one, image=4 * MIB)
        pulled(two, files)
        heard = heard_from(capture.frames(), one.node, two.node)
    noise = [os.urandom(124) for _ in range(32)]
    hostile = [*noise, *made_up(32), *forged(heard, SHORT, 160), *forged(heard, LONG, 160), *heard]
    before, began = Counter(_figures(one)["drops"]), time.monotonic()
    to = bytes.fromhex(one.node.mac.replace(":", ""))
    with flooding(ground.village.lan.nodes[5], addressed(hostile, to), least=FLOOD_FRAMES) as flood:
        pulled(three, files, share=0)
    drops = Counter(_figures(one)["drops"]) - before
    assert flood.sent >= FLOOD_FRAMES
    passed_s = time.monotonic() - began
    read_most = READ_PER_S * (passed_s + 1) / USELESS  # it begins with as many as it may read in a second
    assert 0 < drops.total() <= read_most, "the rest is lost in the kernel"
    assert set(drops) <= {"hint", "budget", "replay", "own", "tag"}, "the kernel drops what is of another format"
    senders = len({frame[SENDER] for frame in heard})
    assert 0 < drops["tag"] <= senders * (EACH_AT_ONCE + EACH_PER_S * passed_s), "the others reach no cipher"


def _connections(process: subprocess.Popen[Any], port: int) -> int:
    """How many connections to its port a process holds: those that wait to be accepted, or to end, are nobody's."""
    rows = [row.split() for row in Path(f"/proc/{process.pid}/net/tcp6").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] != _LISTENS and row[9] != "0" for row in rows)


def _until_gone(process: subprocess.Popen[Any], port: int) -> None:
    while _connections(process, port):
        time.sleep(0.05)


def many_connections(ground: Ground) -> None:
    """Strangers have 8 places for a second, members 32 and 4 of one address; nothing of them stays behind."""
    (one,) = ground.machines(1)
    put(one, file=100)
    one("reconcile", one.root)
    daemon = one.watch()
    port = one.until("peers", is_there)["figures"]["port"]
    away = ground.village.lan.nodes[5]
    addresses = [f"fe80::5:{number:x}" for number in range(1, 10)]
    away.namespace.ip(*(f"address add {address}/64 dev {INTERFACE} nodad" for address in addresses))
    with ExitStack() as stack:
        for number in range(200):
            stranger = stack.enter_context(_stranger(away, one.node, port, addresses[number % 9]))
            with suppress(OSError):
                stranger.send(os.urandom(40))
        assert _connections(daemon, port) <= 32
    _until_gone(daemon, port)
    key, members = key_of(one), 0
    with ExitStack() as stack:
        for address in addresses * 5:
            coming = stack.enter_context(_stranger(away, one.node, port, address))
            coming.settimeout(PATIENCE_S)
            with suppress(OSError):
                member = Insider(coming, key)
                member.say(Ping(number=1))
                members += bool(member.hear())
        assert members == _connections(daemon, port) == 32
    _until_gone(daemon, port)
    assert is_there(one.json("peers"))


@contextmanager
def _stranger(node: Node, at: Node, port: int, address: str) -> Iterator[socket.socket]:
    """A connection that is begun, from one of a node's addresses; it may not be there yet."""
    with node.inside():
        made = socket.socket(socket.AF_INET6)
        zone = socket.if_nametoindex(INTERFACE)
        with made:
            made.setblocking(False)
            made.bind((address, 0, 0, zone))
            made.connect_ex((at.link_local, port, 0, zone))
            yield made


def _skewed(ground: Ground, at_s: float, ahead_s: float) -> tuple[Machine, Machine, dict[str, Any]]:
    """One machine's clock is so far in an epoch, the other's ahead of it; the other one pulls."""
    one, two = ground.machines(2)
    early = at_s - time.time() % EPOCH_S
    files = put(one, image=2 * MIB)
    one("reconcile", one.root)
    one.watch(crooked=[f"clock:{early}"])
    one.until("peers", is_there)
    ground.server.shape(SLOW_MBIT_S)
    two.watch(crooked=[f"clock:{early + ahead_s}"])
    two.until("status", lambda _: has(two, files))
    return one, two, two.until("peers", lambda told: told["figures"])


def clocks_nine_minutes_apart(ground: Ground) -> None:
    """Neighbours understand each other, also from one epoch to the next."""
    _, _, told = _skewed(ground, 100, 540)
    assert told["figures"]["blocks_from_peers"] > 0


def clocks_eleven_minutes_apart(ground: Ground) -> None:
    """Two epochs: nobody is there, the server is used, and it is told why."""
    one, _, told = _skewed(ground, 541, 660)
    assert told["figures"]["blocks_from_peers"] == 0
    assert not has_peer(told)
    figures = one.until("peers", lambda told: told["figures"]["drops"].get("epoch"))["figures"]
    assert not figures["peers"]
    assert one.log.read_text().count("peers.clock_differs") == 1
