"""The state of a fake Synnefo Pithos: containers, versions, blocks; with the real one's weaknesses.

Sources: docs/design/pithos-protocol.md, tests/golden/pithos-0.21.json.xz. Not thread-safe: take `lock`.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate

import msgspec
from msgspec.structs import replace

EMPTY = hashlib.sha256(b"").hexdigest()
META = "x-object-meta-"
EPOCH = 1795169379
"""When the server was made. It is one second older with each version: times are exact, and never the same."""


class RefusedError(Exception):
    """An error reply: `{"<fault>": {"message", "code", "details"}}`."""

    def __init__(self, status: int, fault: str, message: str, details: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = {fault: {"message": message, "code": status, "details": details}}
        self.headers: dict[str, str] = {}


def not_found(what: str) -> RefusedError:
    return RefusedError(404, "itemNotFound", f"{what} does not exist")


def precondition_failed(message: str = "Resource ETag does not match") -> RefusedError:
    return RefusedError(412, "preconditionFailed", message)


def bad_request(message: str) -> RefusedError:
    return RefusedError(400, "badRequest", message)


def forbidden(message: str) -> RefusedError:
    return RefusedError(403, "forbidden", message)


def over_quota(limit: int, usage: int) -> RefusedError:
    text = f"Quota error: Container quota exceeded: limit: {limit}, usage: {usage}"
    return RefusedError(413, "requestEntityTooLarge", text)


def http_date(seconds: float) -> str:
    return formatdate(int(seconds), usegmt=True)


class Version(msgspec.Struct, frozen=True):
    """One version of one name; `deleted` ones are markers.

    `hashes` may name blocks that are longer than the object: what cuts it leaves them as they were.
    """

    serial: int
    object_uuid: str
    size: int
    hashes: tuple[str, ...]
    content_type: str
    meta: dict[str, str]
    deleted: bool = False
    author: str = "alice"
    kept: dict[str, str] = msgspec.field(default_factory=dict)  # Content-Encoding and -Disposition

    @property
    def etag(self) -> str:
        return merkle(self.hashes)

    @property
    def seconds(self) -> float:
        return EPOCH + self.serial + 0.316454

    @property
    def timestamp(self) -> str:
        """Of listings and version lists."""
        return f"{self.seconds:.6f}"

    @property
    def iso(self) -> str:
        return datetime.fromtimestamp(EPOCH + self.serial, UTC).strftime("%Y-%m-%dT%H:%M:%S.316454+00:00")


@dataclass
class Container:
    """Names with all their versions, oldest first."""

    history: dict[str, list[Version]] = field(default_factory=dict)
    made: int = 0
    versioning: str = "auto"
    quota: int = 0
    meta: dict[str, str] = field(default_factory=dict)
    sharing: dict[str, str] = field(default_factory=dict)
    public: dict[str, str] = field(default_factory=dict)

    def current(self, name: str) -> Version | None:
        versions = self.history.get(name)
        return versions[-1] if versions and not versions[-1].deleted else None

    def changed(self) -> int:
        """Second of the last change, any."""
        return EPOCH + max((versions[-1].serial for versions in self.history.values()), default=self.made)

    def last_modified(self, later_s: int = 0) -> str:
        """Time of the last change, or some seconds later."""
        return http_date(self.changed() + later_s)

    def at(self, until: float) -> dict[str, Version]:
        """What was there at a time."""
        then = {name: [v for v in versions if v.seconds <= until] for name, versions in self.history.items()}
        return {name: old[-1] for name, old in sorted(then.items()) if old and not old[-1].deleted}

    def live(self, marker: str = "", prefix: str = "", limit: int | None = None) -> dict[str, Version]:
        """What is there, in the order of the names: behind a marker, with a prefix, so many at most."""
        names = sorted(name for name in self.history if name > marker and name.startswith(prefix))
        found = ((name, self.current(name)) for name in names)
        return dict(itertools.islice(((name, version) for name, version in found if version is not None), limit))

    def below(self, name: str) -> list[str]:
        return [name, *self.live(prefix=f"{name}/")]


def merkle(hashes: tuple[str, ...]) -> str:
    """M:57-82."""
    nodes = [bytes.fromhex(text) for text in hashes]
    if not nodes:
        return EMPTY
    width = 1
    while width < len(nodes):
        width *= 2
    if len(nodes) > 1:
        nodes += [bytes(32)] * (width - len(nodes))
    while len(nodes) > 1:
        nodes = [hashlib.sha256(nodes[at] + nodes[at + 1]).digest() for at in range(0, len(nodes), 2)]
    return nodes[0].hex()


@dataclass
class PithosStore:
    """All containers of a server and its one, global block store (no proof of possession)."""

    block_size: int = 4096
    update_md5: bool = False
    containers: dict[tuple[str, str], Container] = field(default_factory=dict)
    blocks: dict[str, bytes] = field(default_factory=dict)
    # Runs between the check of a condition and the write that it guards: the race of F:863-871, at will.
    between: Callable[[str], None] | None = None
    between_requests: bool = False  # what happens then are requests, too
    quota_bytes: int | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    last_serial: int = 0

    def container(self, account: str, name: str) -> Container:
        found = self.containers.get((account, name))
        if found is None:
            raise not_found("Container")
        return found

    def make_container(self, account: str, name: str) -> bool:
        fresh = (account, name) not in self.containers
        self.containers.setdefault((account, name), Container(made=self.last_serial))
        return fresh

    def version(self, container: Container, name: str, serial: str | None) -> Version:
        if serial is None:
            found = container.current(name)
        elif name not in container.history:
            raise not_found("Object")
        else:
            found = next((v for v in container.history[name] if str(v.serial) == serial and not v.deleted), None)
        if found is None:
            raise not_found("Object" if serial is None else "Version")
        return found

    def put_blocks(self, body: bytes) -> list[str]:
        return [self._put_block(body[at : at + self.block_size]) for at in range(0, len(body), self.block_size)]

    def put_body(
        self, container: Container, name: str, body: bytes, kind: str, meta: dict[str, str], **more: object
    ) -> Version:
        hashes = tuple(self.put_blocks(body)) or (self._put_block(b""),)
        return self.put_version(container, name, len(body), hashes, kind, meta, **more)

    def put_hashmap(
        self,
        container: Container,
        name: str,
        size: int,
        hashes: tuple[str, ...],
        kind: str,
        meta: dict[str, str],
        **more: object,
    ) -> Version | list[str]:
        """The new version, or the ids that are missing."""
        if size < 0 or (len(hashes) != max(1, -(-size // self.block_size)) and (hashes or size)):
            raise bad_request("The object's size does not match with the object's hashmap length")
        for text in hashes:
            if len(text) % 2 or not set(text) <= set("0123456789abcdef"):
                raise bad_request(f"Invalid hash: {text}")
        missing = [text for text in dict.fromkeys(hashes) if text not in self.blocks]
        if missing:
            return missing
        return self.put_version(container, name, size, hashes or (self._put_block(b""),), kind, meta, **more)

    def put_version(
        self,
        container: Container,
        name: str,
        size: int,
        hashes: tuple[str, ...],
        kind: str,
        meta: dict[str, str],
        **more: object,
    ) -> Version:
        before = container.current(name)
        made = Version(
            serial=0,
            object_uuid=before.object_uuid if before else str(uuid.uuid4()),
            size=size,
            hashes=hashes,
            content_type=kind,
            meta=meta,
        )
        return self._append(container, name, replace(made, **more))  # type: ignore[arg-type] # fields of a version

    def change(self, container: Container, name: str, offset: int, data: bytes, cut: int | None) -> Version:
        """Write into an object, and cut it: the last block keeps what was behind."""
        old = self.version(container, name, None)
        raw = bytearray().join(self._padded(old.hashes)) if old.hashes else bytearray()
        raw += bytes(max(0, offset + len(data) - len(raw)))
        raw[offset : offset + len(data)] = data
        size = max(old.size, offset + len(data)) if cut is None else min(cut, max(old.size, offset + len(data)))
        count = max(1, -(-size // self.block_size))
        hashes = tuple(self.put_blocks(bytes(raw[: count * self.block_size]))) or (self._put_block(b""),)
        return self._append(container, name, replace(old, size=size, hashes=hashes))

    def _padded(self, hashes: tuple[str, ...]) -> Iterable[bytes]:
        for text in hashes[:-1]:
            yield self.blocks[text].ljust(self.block_size, b"\0")
        yield self.blocks[hashes[-1]]

    def change_meta(self, container: Container, name: str, meta: dict[str, str], update: bool) -> Version:
        """With `update` an empty value removes its item."""
        before = self.version(container, name, None)
        new = {key: value for key, value in {**before.meta, **meta}.items() if value} if update else meta
        return self._append(container, name, replace(before, meta=new))

    def move(self, container: Container, source: str, target: str, **more: object) -> Version:
        """Replaces the target silently; the uuid follows the object."""
        found = self.version(container, source, None)
        moved = self._append(container, target, replace(found, **more))  # type: ignore[arg-type] # see put_version
        if source != target:
            self.delete(container, source)
        return moved

    def copy(self, container: Container, found: Version, target: str, meta: dict[str, str], **more: object) -> Version:
        """Another object, whatever was there: the name gets a new uuid."""
        fresh = replace(found, object_uuid=str(uuid.uuid4()), meta={**found.meta, **meta}, deleted=False)
        return self._append(container, target, replace(fresh, **more))  # type: ignore[arg-type] # see put_version

    def delete(self, container: Container, name: str) -> None:
        if name in container.history and container.current(name) is None:
            raise RefusedError(404, "itemNotFound", "Object is deleted.")
        found = self.version(container, name, None)
        self._append(container, name, replace(found, deleted=True))
        container.sharing.pop(name, None)

    def purge(self, container: Container, name: str, until: float) -> None:
        """Forget old versions, and all of what is deleted."""
        versions = container.history.get(name, [])
        kept = [v for v in versions if v.seconds > until or (v is versions[-1] and not v.deleted)]
        if kept:
            container.history[name] = kept
        else:
            container.history.pop(name, None)

    def read(self, version: Version) -> bytes:
        """The content; blocks are stored without trailing NULs and padded here."""
        parts = [self.blocks[text].ljust(self.block_size, b"\0") for text in version.hashes]
        return b"".join(parts)[: version.size].ljust(version.size, b"\0")

    def etag(self, version: Version) -> str:
        """What conditions compare with: the object hash, unless PITHOS_UPDATE_MD5."""
        return hashlib.md5(self.read(version)).hexdigest() if self.update_md5 else version.etag

    def check(self, container: Container, name: str, headers: dict[str, str]) -> None:
        """If-Match and If-None-Match (U:448). Not atomic with what follows."""
        current = container.current(name)
        match, none_match = headers.get("if-match"), headers.get("if-none-match")
        etag = self.etag(current) if current else None
        if match is not None and etag is None:
            raise precondition_failed("Resource does not exist")
        if match is not None and etag is not None and not listed(match, etag):
            raise precondition_failed()
        if none_match is not None and etag is not None and listed(none_match, etag):
            raise precondition_failed("Resource exists or ETag matches")
        if self.between is not None and (match is not None or none_match is not None):
            intruder, self.between = self.between, None
            if not self.between_requests:
                intruder(name)
                return
            self.lock.release()
            try:
                intruder(name)
            finally:
                self.lock.acquire()

    def _append(self, container: Container, name: str, version: Version) -> Version:
        if self.quota_bytes is not None and not version.deleted and version.size > self.quota_bytes:
            raise RefusedError(413, "requestEntityTooLarge", "Quota error: Container quota exceeded")
        if container.quota and not version.deleted:
            usage = version.size + sum(v.size for other, v in container.live().items() if other != name)
            if usage > container.quota:
                raise over_quota(container.quota, usage)
        self.last_serial += 1
        numbered = replace(version, serial=self.last_serial)
        kept = container.history.setdefault(name, [])
        if container.versioning == "none":
            kept.clear()
        kept.append(numbered)
        return numbered

    def _put_block(self, data: bytes) -> str:
        stripped = data.rstrip(b"\0")
        name = hashlib.sha256(stripped).hexdigest()
        self.blocks[name] = stripped
        return name


def listed(header: str, etag: str) -> bool:
    """Whether an entity tag is in a list: quoted or bare, weak or not, in whatever case."""
    tags = {part.strip().removeprefix("W/").strip('"').lower() for part in header.split(",")}
    return header.strip() == "*" or etag in tags
