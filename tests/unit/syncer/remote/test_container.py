"""What a Pithos server announces, in the words of all remotes. What is told wrong here is asked of a server in vain."""

from __future__ import annotations

import pytest

from syncer.ports.remote import Capabilities
from syncer.protocol.extensions.subtree import MAX_OBJECTS
from syncer.remote.container.info import ContainerInfo

MIB = 1 << 20


def can(block_size: int, *extensions: str, atomic: bool = True) -> Capabilities:
    return ContainerInfo(
        identity=None, block_size=block_size, block_hash="sha256", atomic=atomic, extensions=frozenset(extensions)
    ).told.can


def test_plain_pithos_can_nothing() -> None:
    assert can(4 * MIB, atomic=False) == Capabilities(
        atomic=False,
        moves_trees=0,
        holds_back=False,
        waits="polling",
        reads=1,
    )


@pytest.mark.parametrize(
    ("extension", "field", "value"),
    [
        ("changes", "waits", "told"),
        ("subtree-moves", "moves_trees", MAX_OBJECTS),
        ("bulk-read", "reads", 1024),
    ],
)
def test_each_extension_is_one_of_the_capabilities(extension: str, field: str, value: object) -> None:
    assert getattr(can(4 * MIB, extension), field) == value


def test_the_text_names_what_is_announced() -> None:
    plain = ContainerInfo(identity=None, block_size=1, block_hash="sha256", atomic=False)
    assert plain.told.text == "plain Pithos"
    ours = ContainerInfo(
        identity=None, block_size=1, block_hash="sha256", atomic=True, extensions=frozenset({"changes", "bulk"})
    )
    assert ours.told.text == "bulk, changes"
