"""Telling a service manager: the datagrams of sd_notify(3), received by a real socket."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from blockfs.runtime.notify import ServiceManager


@pytest.mark.parametrize("abstract", [False, True])
def test_ready_and_stopping_arrive_at_a_path_or_an_abstract_name(tmp_path: Path, *, abstract: bool) -> None:
    address = f"@blocksync-test-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + address[1:] if abstract else address)
        manager = ServiceManager(address)
        manager.ready("serving /a\nREADY=0")
        assert receiver.recv(4096).decode().split("\n") == [
            "READY=1",
            f"MAINPID={os.getpid()}",
            "STATUS=serving /a READY=0",
        ]
        manager.stopping("committing")
        manager.stopping("committing")
        assert receiver.recv(4096) == b"STOPPING=1\nSTATUS=committing"
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(4096)


def test_reloads_and_signs_of_life_arrive(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        manager = ServiceManager(address)
        before_us = time.monotonic_ns() // 1000
        manager.reloading()
        reloading, moment = receiver.recv(4096).decode().split("\n")
        assert reloading == "RELOADING=1"
        assert before_us <= int(moment.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
        manager.alive()
        assert receiver.recv(4096) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", [None, ""])
def test_without_a_service_manager_nothing_happens(address: str | None) -> None:
    manager = ServiceManager(address)
    manager.ready("serving")
    manager.stopping("ending")


def test_a_notification_that_can_not_be_delivered_stops_nothing(tmp_path: Path) -> None:
    with capture_logs() as events:
        ServiceManager(str(tmp_path / "nobody")).ready("serving")
    assert [event["event"] for event in events] == ["notify.failed"]
