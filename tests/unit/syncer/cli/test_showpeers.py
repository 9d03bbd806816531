"""`blocksync peers` and `--follow`: what a person and a program read of a daemon that answers as it is told."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from syncer.cli.output import peers as showpeers
from syncer.peer.exchange.figures import BanFigures, Figures, PeerFigures, UploadFigures
from syncer.watch import control
from syncer.watch.lan import PeersLive, ShareLive
from tests.unit.syncer.cli.quiet import QUIET

ANNA = PeerFigures(
    share="u1", peer="a1" * 16, link="lan0", addresses=("fe80::1",), heard_s=3.0, is_connected=True,
    bytes_per_s=2e6, blocks=5, bytes=5 * 65536, wasted_bytes=0, load=1,
)  # fmt: skip
BAN = BanFigures(peer="b2" * 16, address="fe80::2", for_s=1800.0)


def live(figures: Figures | None, off: str = "") -> PeersLive:
    return PeersLive(off="", shares=[ShareLive(root="/home/anna/images", uuid="u1", off=off)], figures=figures)


def changed(figures: Figures, **fields: object) -> Figures:
    return msgspec.structs.replace(figures, **fields)


class Daemon:
    """Gives one answer after the other, and ends."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "watch.sock")
        self.answers: list[bytes] = []
        self.asked = 0
        self.ends = True
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def says(self, *answers: PeersLive) -> None:
        self.answers += [msgspec.json.encode(each) + b"\n" for each in answers]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                if b'"peers"' in connection.recv(4096):
                    self.asked += 1
                    if self.answers:
                        connection.sendall(
                            self.answers.pop(0) if self.ends or len(self.answers) > 1 else self.answers[0]
                        )

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setattr(showpeers, "_AGAIN_S", 0.0)
    made = Daemon(tmp_path)
    yield made
    made.close()


def follow(daemon: Daemon, *, as_json: bool = False) -> None:
    """Until the daemon has no further answer."""
    with pytest.raises(control.NotWatchingError):
        showpeers.follow(daemon.path, as_json=as_json)


def test_once_all_is_told_in_order(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    uploads = (UploadFigures(peer="c3" * 16, address="fe80::3", blocks=7, bytes=7 * 65536),)
    daemon.says(
        live(changed(QUIET, peers=(ANNA,), bans=(BAN,), blocks_from_peers=5, blocks_to_peers=7, uploads=uploads))
    )
    showpeers.show(daemon.path, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "/home/anna/images  on",
        "links: lan0; port 17511",
        "5 blocks (0 B) from peers, 7 blocks (0 B) to peers",
        "peers",
    ]
    assert lines[5].split() == [
        "a1a1a1a1",
        "lan0",
        "fe80::1",
        "3",
        "s",
        "ago",
        "1.91",
        "MiB",
        "5",
        "320",
        "KiB",
        "yes",
    ]
    assert lines[6] == "giving to c3c3c3c3 fe80::3: 7 blocks (448 KiB)"
    assert lines[7] == "banned for 30 min, it sent a wrong block: b2b2b2b2 fe80::2"


@pytest.mark.parametrize(
    ("drops", "said"),
    [({}, None), ({"hint": 3}, "another key"), ({"epoch": 1, "hint": 3}, "more than ten minutes")],
)
def test_why_nobody_is_found_is_told_as_far_as_it_can_be(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], drops: dict[str, int], said: str | None
) -> None:
    """Another passphrase, or a wrong clock, would otherwise look like an empty network."""
    daemon.says(live(changed(QUIET, drops=drops)))
    showpeers.show(daemon.path, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == "nobody was heard in the last ten minutes"
    assert len(lines) == (4 if said is None else 5)
    assert said is None or said in lines[4]


def test_json_has_a_line_for_each_change_and_none_for_time_that_passes(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    later = msgspec.structs.replace(ANNA, heard_s=4.0, load=9)
    more = msgspec.structs.replace(later, blocks=6)
    daemon.says(
        live(None, off="there is no key yet"),
        live(QUIET),
        live(changed(QUIET, frames_in={"who_has": 5}, drops={"magic": 2})),
        live(changed(QUIET, peers=(ANNA,))),
        live(changed(QUIET, peers=(later,))),
        live(changed(QUIET, peers=(more,), bans=(BAN,))),
        live(changed(QUIET, peers=(more,), bans=(msgspec.structs.replace(BAN, for_s=1.0),))),
        live(QUIET),
    )
    follow(daemon, as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["type"] for each in told] == ["peers"] * 5
    assert [each["figures"] and [peer["blocks"] for peer in each["figures"]["peers"]] for each in told] == [
        None, [], [5], [6], [],
    ]  # fmt: skip
    assert len(told[3]["figures"]["bans"]) == 1


def test_into_a_pipe_each_line_comes_once_and_again_when_it_changes(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    more = msgspec.structs.replace(ANNA, blocks=6, is_connected=False)
    daemon.says(
        live(QUIET), live(changed(QUIET, peers=(ANNA,))), live(changed(QUIET, peers=(more,), bans=(BAN,))), live(QUIET)
    )
    follow(daemon)
    assert capsys.readouterr().out.splitlines() == [
        "/home/anna/images  on",
        "links: lan0; port 17511",
        "0 blocks (0 B) from peers, 0 blocks (0 B) to peers",
        "nobody was heard in the last ten minutes",
        "peer  a1a1a1a1  lan0  fe80::1  1.91 MiB/s  5 blocks (320 KiB)  connected",
        "peer  a1a1a1a1  lan0  fe80::1  1.91 MiB/s  6 blocks (320 KiB)",
        "banned for 30 min, it sent a wrong block: b2b2b2b2 fe80::2",
        "peer  a1a1a1a1  is gone",
        "nobody was heard in the last ten minutes",
    ]


class Terminal(io.StringIO):
    """What is drawn."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_table_is_drawn_again(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    evil = msgspec.structs.replace(ANNA, link="lan\x1b[2J")
    daemon.says(live(QUIET), live(changed(QUIET, peers=(evil,))))
    follow(daemon)
    drawn = terminal.getvalue()
    assert "a1a1a1a1" in drawn
    assert "connected" in drawn
    assert "\x1b[1A" in drawn  # up again, over what was there
    assert "lan\x1b[2J" not in drawn
    assert drawn.rstrip().endswith("\x1b[?25h")  # the cursor is there again


def test_ctrl_c_ends_it_with_130_and_no_traceback(daemon: Daemon, tmp_path: Path) -> None:
    daemon.ends = False
    daemon.says(live(QUIET))
    heeds = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # the tests may run in the background
    )
    program = f"{heeds}; import sys; sys.path[:0] = {sys.path!r}; from syncer.cli.main import main; main()"
    home = tmp_path / "state/blocksync"
    home.mkdir(parents=True)
    (home / "watch.sock").symlink_to(daemon.path)
    process = subprocess.Popen(
        [sys.executable, "-c", program, "peers", "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "/home/anna/images  on\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert said.strip() == "blocksync: interrupted"


def test_a_daemon_whose_answer_lacks_something_is_of_an_older_release(daemon: Daemon) -> None:
    daemon.answers = [b'{"off":"","shares":[],"figures":{"port":1}}\n']
    with pytest.raises(control.OlderDaemonError):
        showpeers.show(daemon.path, as_json=False)


def test_without_a_daemon_and_with_one_that_hangs_up_the_words_say_which(tmp_path: Path, daemon: Daemon) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(control.NotWatchingError, match="no `blocksync watch` is running"):
        showpeers.show(str(tmp_path / "empty/watch.sock"), as_json=False)
    with pytest.raises(control.NotWatchingError):
        showpeers.follow(str(tmp_path / "empty/watch.sock"), as_json=True)
