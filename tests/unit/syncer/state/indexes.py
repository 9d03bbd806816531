"""What the indexes of a StateDB say, as the numbers of the rows."""

from __future__ import annotations

from syncer.core.model import LocalTag, Nid
from syncer.state.statedb import StateDB


def at(state: StateDB, parent: Nid, name: bytes) -> list[Nid]:
    """Rows in a slot."""
    with state.rows() as rows:
        return [row.nid for row in rows.at(parent, name)]


def with_inode(state: StateDB, tag: LocalTag) -> list[Nid]:
    """Rows with an inode."""
    with state.rows() as rows:
        return [row.nid for row in rows.with_inode(tag)]


def with_uuid(state: StateDB, uuid: str) -> list[Nid]:
    """Rows with a remote uuid."""
    with state.rows() as rows:
        return [row.nid for row in rows.with_uuid(uuid)]
