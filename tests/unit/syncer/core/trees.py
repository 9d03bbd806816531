"""Short notation for trees in tests: `{1: file("a", 7), 2: folder("d"), 3: file("b", 8, parent=2)}`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from blockfs.blocks.ids import ObjectHash
from syncer.core.base import BaseIndex
from syncer.core.model import (
    Action,
    BaseRow,
    Content,
    FileStat,
    Identified,
    Kind,
    LocalTag,
    Meta,
    Nid,
    Node,
    Plan,
    RelPath,
    RemoteStat,
    RemoteTag,
    Tag,
    meta_of,
)
from syncer.core.paths import PARK_FOLDER, path_in, paths_of
from syncer.core.planner.identify import evidence, identify_local, identify_remote
from syncer.core.planner.merge import Policy
from syncer.core.planner.plan import make_plan
from syncer.remote.serials import SERIALS

Nodes = dict[int, Node]
POLICY = Policy(host="pc", utc="T")
NEW = 1 << 30
"""The first number that `plan_of` gives to a new node."""


def content(number: int, size_bytes: int | None = None) -> Content:
    return Content(
        size_bytes=number if size_bytes is None else size_bytes, object_hash=ObjectHash(bytes([number]) * 32)
    )


def file(name: str, number: int, *, parent: int = 0, mode: int | None = 0o644, mtime: int | None = 1) -> Node:
    return Node(
        parent=Nid(parent),
        name=name.encode(),
        kind=Kind.FILE,
        content=content(number),
        meta=meta_of(mode, mtime_ns=mtime),
    )


def folder(name: str, *, parent: int = 0, mode: int | None = 0o755) -> Node:
    return Node(parent=Nid(parent), name=name.encode(), kind=Kind.DIRECTORY, meta=meta_of(mode))


def link(name: str, target: str, *, parent: int = 0) -> Node:
    return Node(parent=Nid(parent), name=name.encode(), kind=Kind.SYMLINK, target=target.encode())


def local_tag(number: int, *, ctime: int = 0) -> LocalTag:
    return LocalTag(device=1, ino=number, btime_ns=0, size_bytes=0, mtime_ns=0, ctime_ns=ctime)


def remote_tag(number: int, *, version: int = 1) -> RemoteTag:
    return RemoteTag(uuid=f"u{number}", version=version, etag="", size_bytes=0)


def tree(nodes: Nodes) -> dict[Nid, Node]:
    return {Nid(nid): node for nid, node in nodes.items()}


def base_of(nodes: Nodes) -> BaseIndex:
    """Rows whose evidence carries the node's number."""
    return BaseIndex(
        BaseRow(
            nid=Nid(nid),
            node=node,
            local=evidence(node.kind, local_tag(nid)),  # type: ignore[arg-type] # a local tag stays one
            remote=remote_tag(nid),
        )
        for nid, node in nodes.items()
    )


def side(nodes: Nodes, tag: Callable[[int], Tag], **more: object) -> Identified:
    return Identified(tree=tree(nodes), tags={Nid(nid): tag(nid) for nid in nodes}, **more)  # type: ignore[arg-type] # named in the tests


def fresh(first: int = 1000) -> Callable[[], Nid]:
    numbers = count(first)
    return lambda: Nid(next(numbers))


def plan(base: Nodes, local: Nodes, remote: Nodes, policy: Policy = POLICY) -> Plan:
    return make_plan(base_of(base), side(local, local_tag), side(remote, remote_tag), policy, fresh())


def names(nodes: dict[Nid, Node]) -> dict[str, object]:
    """Path → payload: number of a file's content, target of a link, None for a directory."""
    return {
        path.decode(): nodes[nid].content.object_hash[0] if nodes[nid].content is not None else nodes[nid].target  # type: ignore[union-attr] # checked
        for nid, path in paths_of(nodes).items()
    }


def steps(actions: object) -> list[str]:
    """Actions as text: `Move a/b`."""
    return [f"{type(action).__name__} {action.path.decode()}" for action in actions]  # type: ignore[attr-defined] # a tuple of actions


def file_stat(path: str, number: int | None, *, ino: int, mode: int = 0o644, mtime: int = 1) -> FileStat:
    return FileStat(
        path=RelPath(path.encode()),
        kind=Kind.FILE,
        meta=meta_of(mode, mtime_ns=mtime),
        content=content(number) if number is not None else None,
        tag=local_tag(ino),
    )


def folder_stat(path: str, *, ino: int) -> FileStat:
    return FileStat(
        path=RelPath(path.encode()), kind=Kind.DIRECTORY, meta=meta_of(0o755, mtime_ns=5), tag=local_tag(ino)
    )


def remote_file(path: str, number: int, *, uuid: int, version: int = 1, meta: Meta | None = None) -> RemoteStat:
    return RemoteStat(
        path=RelPath(path.encode()),
        kind=Kind.FILE,
        meta=meta,
        content=content(number),
        tag=remote_tag(uuid, version=version),
    )


def remote_folder(path: str, *, uuid: int) -> RemoteStat:
    return RemoteStat(path=RelPath(path.encode()), kind=Kind.DIRECTORY, meta=meta_of(0o755), tag=remote_tag(uuid))


def plan_of(base: BaseIndex, local: Sequence[FileStat], remote: Sequence[object], beside: int) -> Plan:
    numbers = fresh(NEW)
    here = identify_local(local, frozenset(), base, numbers)
    there = identify_remote(remote, base, numbers, SERIALS)  # type: ignore[arg-type] # remote stats
    return make_plan(base, here, there, POLICY, numbers, beside=beside)


def essence(plan: Plan) -> dict[str, object]:
    """What a plan says, without the numbers it gives to new nodes."""
    return {
        "local": [_of(action) for action in plan.local],
        "remote": [_of(action) for action in plan.remote],
        "adopt": sorted(str(path_in(plan.local_state.tree, adopt.nid)) for adopt in plan.adopt),
        "forget": sorted(plan.forget),
        "notes": plan.notes,
        "deletions": plan.deletions,
        "digest": plan.digest,
    }


def _of(action: Action) -> tuple[object, ...]:
    fields = {name: getattr(action, name) for name in action.__struct_fields__}
    for name in ("nid", "parent", "copy_of", "after", "absorbed_by"):
        if fields.get(name, 0) is not None and fields.get(name, 0) >= NEW:
            fields[name] = "new"
    if fields["path"].startswith(PARK_FOLDER):
        fields["path"] = "parked"
    return type(action).__name__, *sorted((key, str(value)) for key, value in fields.items())


def deep_tree(levels: int) -> tuple[dict[Nid, BaseRow], RelPath]:
    """Folders in each other, numbered from 1 at the top; the path of the last."""
    rows = base_of({number: folder("d", parent=number - 1) for number in range(1, levels + 1)}).rows
    return dict(rows), RelPath(b"/".join([b"d"] * levels))


def wide_tree(*, folders: int, files: int) -> dict[Nid, BaseRow]:
    found: dict[Nid, BaseRow] = {}

    def add(node: Node) -> Nid:
        nid = Nid(1000 + len(found))
        tag = RemoteTag(uuid=f"u{nid}", version=nid, etag="", size_bytes=0)
        found[nid] = BaseRow(nid=nid, node=node, local=local_tag(nid), remote=tag)
        return nid

    for number in range(folders):
        parent = add(folder(f"d{number}"))
        for each in range(files):
            add(file(f"f{each}", 7, parent=parent))
    return found
