"""The state of a fake Synnefo Pithos: containers, versions, blocks; with the real one's weaknesses.

Sources: docs/design/pithos-protocol.md; U, F, M there are Synnefo's own files. Not thread-safe: take `lock`.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from email.utils import formatdate

EMPTY = hashlib.sha256(b"").hexdigest()
META = "x-object-meta-"


class RefusedError(Exception):
    """An error reply: `{"<fault>": {"message", "code", "details"}}`."""

    def __init__(self, status: int, fault: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {fault: {"message": message, "code": status, "details": ""}}


def not_found(what: str) -> RefusedError:
    return RefusedError(404, "itemNotFound", f"{what} does not exist")


def precondition_failed() -> RefusedError:
    return RefusedError(412, "preconditionFailed", "Resource ETag does not match")


def bad_request(message: str) -> RefusedError:
    return RefusedError(400, "badRequest", message)


@dataclass(frozen=True)
class Version:
    """One version of one name; `deleted` ones are markers."""

    serial: int
    object_uuid: str
    size: int
    hashes: tuple[str, ...]
    content_type: str
    meta: dict[str, str]
    deleted: bool = False

    @property
    def etag(self) -> str:
        return merkle(self.hashes)

    @property
    def timestamp(self) -> str:
        """Of listings and version lists."""
        return f"{1795169379 + self.serial / 1000:.6f}"

    @property
    def http_date(self) -> str:
        """Of a HEAD or GET: full seconds."""
        return formatdate(int(1795169379 + self.serial / 1000), usegmt=True)


@dataclass
class Container:
    """Names with all their versions, oldest first."""

    history: dict[str, list[Version]] = field(default_factory=dict)

    def current(self, name: str) -> Version | None:
        versions = self.history.get(name)
        return versions[-1] if versions and not versions[-1].deleted else None

    def last_modified(self, later_s: int = 0) -> str:
        """Time of the last change, any, or some seconds later; seconds are serials here, so that it is exact."""
        serial = max((versions[-1].serial for versions in self.history.values()), default=0)
        return formatdate(1795169379 + serial + later_s, usegmt=True)

    def live(self, marker: str = "", prefix: str = "", limit: int | None = None) -> dict[str, Version]:
        """What is there, in the order of the names: behind a marker, with a prefix, so many at most."""
        names = sorted(name for name in self.history if name > marker and name.startswith(prefix))
        found = ((name, self.current(name)) for name in names)
        return dict(itertools.islice(((name, version) for name, version in found if version is not None), limit))


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
    _serial: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def container(self, account: str, name: str) -> Container:
        found = self.containers.get((account, name))
        if found is None:
            raise not_found("Container")
        return found

    def make_container(self, account: str, name: str) -> bool:
        fresh = (account, name) not in self.containers
        self.containers.setdefault((account, name), Container())
        return fresh

    def version(self, container: Container, name: str, serial: str | None) -> Version:
        if serial is None:
            found = container.current(name)
        else:
            found = next(
                (v for v in container.history.get(name, []) if str(v.serial) == serial and not v.deleted), None
            )
        if found is None:
            raise not_found("Object" if serial is None else "Version")
        return found

    def put_blocks(self, body: bytes) -> list[str]:
        return [self._put_block(body[at : at + self.block_size]) for at in range(0, len(body), self.block_size)]

    def put_body(self, container: Container, name: str, body: bytes, kind: str, meta: dict[str, str]) -> Version:
        hashes = tuple(self.put_blocks(body)) or (self._put_block(b""),)
        return self.put_version(container, name, len(body), hashes, kind, meta)

    def put_hashmap(
        self, container: Container, name: str, size: int, hashes: tuple[str, ...], kind: str, meta: dict[str, str]
    ) -> Version | list[str]:
        """The new version, or the ids that are missing."""
        if len(hashes) != max(1, -(-size // self.block_size)) and hashes:
            raise bad_request("The object's size does not match with the object's hashmap length")
        missing = [text for text in dict.fromkeys(hashes) if text not in self.blocks]
        return missing or self.put_version(container, name, size, hashes or (EMPTY,), kind, meta)

    def put_version(
        self, container: Container, name: str, size: int, hashes: tuple[str, ...], kind: str, meta: dict[str, str]
    ) -> Version:
        if self.quota_bytes is not None and size > self.quota_bytes:
            raise RefusedError(413, "requestEntityTooLarge", "Quota error: Container quota exceeded")
        before = container.current(name)
        return self._append(
            container,
            name,
            Version(
                serial=0,
                object_uuid=before.object_uuid if before else str(uuid.uuid4()),
                size=size,
                hashes=hashes,
                content_type=kind,
                meta=meta,
            ),
        )

    def change_meta(self, container: Container, name: str, meta: dict[str, str], update: bool) -> Version:
        before = self.version(container, name, None)
        return self._append(container, name, replace(before, meta={**before.meta, **meta} if update else meta))

    def move(self, container: Container, source: str, target: str) -> Version:
        """Replaces the target silently; the uuid follows the object."""
        found = self.version(container, source, None)
        moved = self._append(container, target, found)
        self.delete(container, source)
        return moved

    def copy(self, container: Container, found: Version, target: str, meta: dict[str, str]) -> Version:
        """Another object, whatever was there: the name gets a new uuid."""
        return self._append(
            container, target, replace(found, object_uuid=str(uuid.uuid4()), meta={**found.meta, **meta})
        )

    def delete(self, container: Container, name: str) -> None:
        found = self.version(container, name, None)
        self._append(container, name, replace(found, deleted=True))

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
        if match is not None and (etag is None or not _listed(match, etag)):
            raise precondition_failed()
        if none_match is not None and etag is not None and _listed(none_match, etag):
            raise precondition_failed()
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
        numbered = replace(version, serial=next(self._serial))
        container.history.setdefault(name, []).append(numbered)
        return numbered

    def _put_block(self, data: bytes) -> str:
        stripped = data.rstrip(b"\0")
        name = hashlib.sha256(stripped).hexdigest()
        self.blocks[name] = stripped
        return name


def _listed(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in {part.strip().strip('"') for part in header.split(",")}
