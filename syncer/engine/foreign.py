"""Keep a version of somebody else that our own write replaced unseen, on servers without atomic conditions."""

from __future__ import annotations

from syncer.core.conflict import conflict_name
from syncer.core.merge import Policy
from syncer.core.model import NO_META, ROOT, Kind, Node, RelPath
from syncer.core.paths import join, split
from syncer.errors import ConflictOnRemoteError
from syncer.local.root import content_of
from syncer.remote.client import CloudClient, ForeignVersion, MissingBlocks


async def keep_beside(remote: CloudClient, foreign: ForeignVersion, policy: Policy) -> RelPath:
    """Put that version beside its object as a conflict copy. Its blocks are on the server: nothing is transferred.

    Returns:
        Where it is now. The next cycle pulls it like any new file; a run that repeats this finds the name taken.

    Raises:
        ConflictOnRemoteError: It is no file, or the server lost its blocks.
    """
    if foreign.kind is not Kind.FILE:
        raise ConflictOnRemoteError(foreign.path, "a file's version", foreign.kind.value)
    blocks = await remote.block_list(foreign.path, foreign.tag)
    above, name = split(foreign.path)
    node = Node(parent=ROOT, name=name, kind=Kind.FILE, content=content_of(blocks))
    copy = join(above, conflict_name(node, host=policy.host, utc=policy.utc, taken=()))
    if isinstance(await remote.put_object(copy, blocks, NO_META, None), MissingBlocks):
        raise ConflictOnRemoteError(foreign.path, f"version {foreign.tag.version}", "its blocks are gone")
    return copy
