"""Hypothesis strategies for values of the domain, shared by all tests."""

from __future__ import annotations

from hypothesis import strategies as st

from blockfs.blocks.ids import ObjectHash
from syncer.core.model import BaseRow, Content, Kind, LocalTag, Nid, Node, RelPath, RemoteTag, meta_of
from syncer.core.xattrs import NAME_MAX, as_xattrs
from syncer.protocol.pithos.headers import ObjectState

_u32 = st.integers(0, 2**32 - 1)
_u64 = st.integers(0, 2**64 - 1)
_time_ns = st.integers(-(2**63), 2**63 - 1)

nids = st.integers(1, 2**63).map(Nid)
names = (
    st.binary(min_size=1, max_size=255)
    .filter(lambda raw: b"/" not in raw and b"\0" not in raw)
    .filter(lambda raw: raw not in (b".", b".."))
)
text_names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60
).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=5).map(lambda segments: RelPath(b"/".join(segments)))
contents = st.builds(Content, size_bytes=_u64, object_hash=st.binary(min_size=32, max_size=32).map(ObjectHash))
xattr_names = st.binary(min_size=1, max_size=NAME_MAX).filter(lambda raw: b"\0" not in raw)
xattrs = st.dictionaries(xattr_names, st.binary(max_size=200), max_size=5).map(as_xattrs)
metas = st.builds(
    meta_of, mode=st.none() | st.integers(0, 0o7777), mtime_ns=st.none() | _time_ns, xattrs=st.none() | xattrs
)
local_tags = st.builds(
    LocalTag,
    device=_u64,
    ino=_u64,
    btime_ns=_time_ns,
    size_bytes=_u64,
    mtime_ns=_time_ns,
    ctime_ns=_time_ns,
    version=st.none() | _u64,
)
remote_tags = st.builds(RemoteTag, uuid=st.text(max_size=80), version=_u64, etag=st.text(max_size=70), size_bytes=_u64)
targets = st.binary(min_size=1, max_size=300)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node of any kind."""
    kind = draw(st.sampled_from(Kind))
    return Node(
        parent=Nid(draw(st.integers(0, 2**62))),
        name=draw(names),
        kind=kind,
        content=draw(contents) if kind is Kind.FILE else None,
        target=draw(targets) if kind is Kind.SYMLINK else None,
        meta=draw(metas),
    )


rows = st.builds(BaseRow, nid=nids, node=nodes(), local=st.none() | local_tags, remote=st.none() | remote_tags)


# --- what Pithos calls them: an object's name is text, and so is its metadata

_segments = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
object_names = st.lists(_segments.filter(lambda name: name not in (".", "..")), min_size=1, max_size=6).map("/".join)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_keys = _text.filter(lambda key: key == key.lower() and 0 < len(key) <= 20)
object_states = st.builds(
    ObjectState,
    size_bytes=st.integers(0, 1 << 60),
    object_hash=st.binary(min_size=32, max_size=32).map(ObjectHash),
    uuid=st.uuids().map(str),
    version=st.integers(1, 1 << 60),
    modified_us=st.integers(0, 1 << 52),
    content_type=st.sampled_from(["application/octet-stream", "application/directory", "text/plain; charset=x"]),
    modified_by=_text,
    meta=st.dictionaries(_keys, _text, max_size=5),
)
