"""A bug in each request of the control socket: those that change nothing tell it, all others abandon the mount."""

from __future__ import annotations

import errno
import os
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from blockfs.control import protocol
from blockfs.engine import volume as volumes
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import AbandonedError, ReadOnlyError
from blockfs.service import handler as module
from blockfs.service.counters import Counters
from blockfs.service.handler import ANSWERS, BugError, Effect, MountHandler

ALL: list[type[msgspec.Struct]] = sorted(typing.get_args(protocol.Request), key=lambda one: one.__name__)


class Broken:
    """Every call of it is a bug."""

    def __getattr__(self, name: str) -> Any:
        def fails(*_arguments: object, **_keywords: object) -> None:
            raise AssertionError(name)

        return fails


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    path = os.fsencode(tmp_path / "v")
    volumes.init(path)
    opened = Filesystem.open(path, EngineConfig(background=False))
    yield opened
    opened.abandon()


@pytest.fixture
def handler(filesystem: Filesystem) -> MountHandler:
    return MountHandler(filesystem, Broken(), b"/mnt", lambda: None, Counters())


def asked(kind: type[msgspec.Struct], **fields: object) -> Any:
    """A request of a kind; what it says does not matter."""
    needed = {field.name: None for field in msgspec.structs.fields(kind) if field.required}
    return kind(**(needed | fields))


def test_the_table_knows_all_requests_of_the_control_socket() -> None:
    assert set(ANSWERS) == set(ALL)


def test_a_read_only_mount_answers_what_changes_nothing(
    handler: MountHandler, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "read_only", True)
    monkeypatch.setattr(
        module, "ANSWERS", {kind: (lambda *_: protocol.Done(), row[1]) for kind, row in ANSWERS.items()}
    )
    session = handler.session()
    answered = set()
    for kind in ALL:
        try:
            session.answer(asked(kind))
            answered.add(kind.__name__)
        except ReadOnlyError:
            continue
    assert answered == {
        *("Status", "Stats", "Changes", "Wait", "Hashes", "BlockListPage", "Fsck", "Scrub", "Shutdown", "SnapshotList"),
        *("BlockMapOf", "SharingOf"),
    }
    with pytest.raises(ReadOnlyError):
        session.answer(protocol.Shutdown(seal=True))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_bug_in_a_control_request_is_told_and_ends_the_mount_if_it_may_have_changed_something(
    handler: MountHandler, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, kind: type[msgspec.Struct]
) -> None:
    session = handler.session()
    effect = ANSWERS[kind][1]
    monkeypatch.setattr(module, "ANSWERS", {kind: (Broken().answer, effect)})
    looks = effect is Effect.LOOKS
    with structlog.testing.capture_logs() as logs, pytest.raises(BugError if looks else AbandonedError):
        session.answer(asked(kind))
    assert [one["event"] for one in logs] == ["request.crashed" if looks else "mount.abandoned"]
    assert filesystem.fatal.has_struck is not looks
    assert handler.ending.is_set() is not looks


def test_a_bug_while_a_conversation_is_cleared_away_ends_the_mount(
    handler: MountHandler, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = handler.session()
    session.prepared.add(7)
    monkeypatch.setattr(filesystem, "apply", Broken())
    with pytest.raises(AssertionError):
        session.close()
    assert filesystem.fatal.has_struck


def test_a_prepared_file_that_can_not_be_dropped_keeps_no_other_from_it(
    handler: MountHandler, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[int] = []

    def abandon_file(handle: int) -> None:
        dropped.append(handle)
        if len(dropped) == 1:
            raise OSError(errno.EIO, "the host fails")

    session = handler.session()
    session.prepared.update({7, 8})
    monkeypatch.setattr(filesystem.apply, "abandon_file", abandon_file)
    session.close()
    assert sorted(dropped) == [7, 8]
    assert not filesystem.fatal.has_struck
