"""What a fake Synnefo Pithos does with a request on an account, a container or an object."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote

from tests.fakes.pithos_store import (
    EPOCH,
    META,
    Container,
    PithosStore,
    RefusedError,
    Version,
    bad_request,
    forbidden,
    http_date,
    listed,
    not_found,
    precondition_failed,
)
from tests.fakes.pithos_wire import (
    TEXT,
    Answer,
    allowed,
    as_json,
    as_xml,
    container_headers,
    container_meta,
    meta_in,
    object_headers,
    quoted,
    ranges_in,
    row_of,
    several,
    sharing_of,
)

OCTETS = "application/octet-stream"
QUOTA = 1 << 50


@dataclass
class Call:
    """One request.

    Attributes:
        reader: Account that the token belongs to.
        headers: By lower-case name.
        listing_limit: Most rows of a listing.
        stale: A listing to answer instead of the present one.
    """

    store: PithosStore
    account: str
    box_name: str
    name: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    reader: str
    listing_limit: int
    stale: list[dict[str, Any]] | None = None

    def answer(self, method: str) -> Answer:
        if self.name:
            return ObjectCall(**vars(self)).do(method)
        return ContainerCall(**vars(self)).do(method) if self.box_name else self.of_account(method)

    def of_account(self, method: str) -> Answer:
        boxes = {name: box for (account, name), box in self.store.containers.items() if account == self.account}
        if self.reader != self.account or method not in {"HEAD", "GET"}:
            raise forbidden("You are not allowed to do this")
        headers = {
            "X-Account-Policy-Quota": str(QUOTA),
            f"X-Account-Policy-Quota-{self.account.capitalize()}": str(QUOTA),
            "X-Account-Bytes-Used": str(sum(v.size for box in boxes.values() for v in box.live().values())),
            "X-Account-Container-Count": str(len(boxes)),
        }
        if method == "HEAD":
            return Answer(204, headers)
        if self.query.get("format") != "json":
            names = "".join(f"{name}\n" for name in sorted(boxes))
            return Answer(200 if names else 204, {**headers, "Content-Type": TEXT}, names.encode())
        rows = [
            {
                "count": len(box.live()),
                "last_modified": Version(box.made, "", 0, (), "", {}).iso,
                "bytes": sum(v.size for v in box.live().values()),
                "name": name,
                "x_container_policy": {"project": self.account, "quota": str(box.quota), "versioning": box.versioning},
            }
            for name, box in sorted(boxes.items())
        ]
        return as_json(200, rows, headers)

    def only(self, method: str, calls: dict[str, Callable[[], Answer]]) -> Answer:
        if method not in calls:
            refused = RefusedError(405, "notAllowed", "Method not allowed")
            refused.headers["Allow"] = ",".join(calls)
            raise refused
        return calls[method]()

    @property
    def box(self) -> Container:
        return self.store.container(self.account, self.box_name)

    def since(self, changed_s: float) -> bool:
        """Whether something has changed since the time that the request names, in full seconds."""
        then = self.headers.get("if-modified-since")
        return then is None or int(changed_s) > parsedate_to_datetime(then).timestamp()


class ContainerCall(Call):
    """A request on a container."""

    def do(self, method: str) -> Answer:
        if len(self.box_name) > 256:
            raise bad_request("Container name too large")
        if self.reader != self.account:
            box = self.store.containers.get((self.account, self.box_name))
            if box is None or not self.visible(box):
                raise forbidden("User does not have read access to the container")
            if method in {"PUT", "POST", "DELETE"}:  # blocks, too (M:2600-2603)
                raise forbidden("You are not allowed to do this")
        calls = {"HEAD": self.head, "PUT": self.put, "POST": self.post, "DELETE": self.delete, "GET": self.list}
        return self.only(method, calls)

    def visible(self, box: Container) -> list[str]:
        return [name for name in box.live() if allowed(sharing_of(box, name)[0], self.reader, "read")]

    def put(self) -> Answer:
        self.policies(None)
        fresh = self.store.make_container(self.account, self.box_name)
        self.policies(self.box)
        return Answer(201 if fresh else 202)

    def policies(self, box: Container | None) -> None:
        """Take policies over, or only look at them."""
        versioning = self.headers.get("x-container-policy-versioning", "auto")
        quota = self.headers.get("x-container-policy-quota", "0")
        if versioning not in {"auto", "none"}:
            raise bad_request("The versioning policy value should be either 'auto' or 'none'.")
        if not quota.isdecimal():
            raise bad_request("The quota policy value should be a positive integer.")
        if box is not None and "x-container-policy-versioning" in self.headers:
            box.versioning = versioning
        if box is not None and "x-container-policy-quota" in self.headers:
            box.quota = int(quota)

    def post(self) -> Answer:
        """Of blocks, if it has a body: a missing container is not noticed."""
        if self.body:
            if self.headers.get("content-type") != OCTETS:
                return Answer(202)  # stores nothing and says so only by its empty body
            return as_json(202, self.store.put_blocks(self.body))
        self.policies(None)
        found = container_meta(self.headers)
        if (self.account, self.box_name) in self.store.containers:
            self.policies(self.box)
            if found or "update" not in self.query:
                self.box.meta = {**(self.box.meta if "update" in self.query else {}), **found}
        return Answer(202)

    def delete(self) -> Answer:
        box = self.box
        if "delimiter" in self.query:
            for name in list(box.live()):
                self.store.delete(box, name)
        elif box.live():
            raise RefusedError(409, "conflict", "Container is not empty")
        else:
            del self.store.containers[self.account, self.box_name]
        return Answer(204)

    def head(self) -> Answer:
        if not self.since(self.box.changed()):
            return Answer(304)
        return Answer(204, self.described())

    def described(self) -> dict[str, str]:
        headers = container_headers(self.store, self.box, self.account, self.reader)
        until = self.until()
        if until is not None:
            then = self.box.at(until).values()
            headers["X-Container-Until-Timestamp"] = http_date(max((v.seconds for v in then), default=EPOCH))
            headers["X-Container-Object-Count"] = str(len(then))
            headers["X-Container-Bytes-Used"] = str(sum(v.size for v in then))
        return headers

    def until(self) -> float | None:
        text = self.query.get("until", "")
        return float(text) if text.isdecimal() else None

    def list(self) -> Answer:
        box = self.box
        if not self.since(box.changed()):
            return Answer(304)
        headers = self.described()
        rows = self.rows(box) if self.stale is None else self.selected(self.stale)
        form = self.query.get("format")
        if form is None and "application/json" in self.headers.get("accept", ""):
            form = "json"
        if form == "json":
            return as_json(200, rows, headers)
        if form == "xml":
            return Answer(
                200, {**headers, "Content-Type": "application/xml; charset=UTF-8"}, as_xml(self.box_name, rows)
            )
        text = "".join(f"{row.get('name', row.get('subdir'))}\n" for row in rows).encode()
        return Answer(200 if text else 204, {**headers, "Content-Type": TEXT}, text)

    def limit(self) -> int:
        text = self.query.get("limit", "")
        return min(int(text), self.listing_limit) if text.isdecimal() and int(text) else self.listing_limit

    def selected(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows of an older listing."""
        marker, prefix = self.query.get("marker", ""), self.query.get("prefix", "")
        return [row for row in rows if row["name"] > marker and row["name"].startswith(prefix)][: self.limit()]

    def rows(self, box: Container) -> list[dict[str, Any]]:
        until, marker = self.until(), self.query.get("marker", "")
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        path = self.query.get("path", "")
        if path:
            prefix, delimiter = f"{path}/", "/"
        some = delimiter or until is not None or {"meta", "shared", "public"} & self.query.keys()
        found = box.live(marker, prefix, None if some or self.reader != self.account else self.limit())
        if until is not None:
            found = {name: v for name, v in box.at(until).items() if name > marker and name.startswith(prefix)}
        rows: dict[str, dict[str, Any]] = {}
        for name, version in found.items():
            head, mark, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            if mark and not path:
                rows.setdefault(prefix + head + mark, {"subdir": prefix + head + mark})
            elif not mark and self.wanted(box, name, version):
                rows[name] = row_of(box, self.account, name, version, self.reader, past=until is not None)
        return [rows[name] for name in sorted(rows)][: self.limit()]

    def wanted(self, box: Container, name: str, version: Version) -> bool:
        if self.reader != self.account and name not in self.visible(box):
            return False
        for condition in filter(None, self.query.get("meta", "").split(",")):
            key, equals, value = condition.partition("=")
            there = version.meta.get(META + key.lower())
            if there is None or (equals and there != value):
                return False
        if "shared" in self.query and not sharing_of(box, name)[0]:
            return False
        return "public" not in self.query or name in box.public


class ObjectCall(Call):
    """A request on an object."""

    def do(self, method: str) -> Answer:
        if "\n" in self.name:
            raise bad_request("API endpoint not found")
        if "\0" in self.name:
            raise bad_request("A string literal cannot contain NUL (0x00) characters.")
        if len(self.name) > 1024:
            raise bad_request("Object name too large.")
        calls: dict[str, Callable[[], Answer]] = {
            "HEAD": self.head,
            "GET": self.get,
            "PUT": self.put,
            "POST": self.post,
            "COPY": self.copy,
            "MOVE": self.move,
            "DELETE": self.delete,
        }
        if self.reader != self.account:
            self.permit(method)
        return self.only(method, calls)

    def permit(self, method: str) -> None:
        box = self.store.containers.get((self.account, self.box_name))
        shared = "" if box is None else sharing_of(box, self.name)[0]
        right = "read" if method in {"HEAD", "GET"} else "write"
        if allowed(shared, self.reader, right):
            return
        if not allowed(shared, self.reader, "read"):
            raise forbidden("User does not have access to the object")
        raise forbidden("" if method == "DELETE" else "User does not have write access to the object")

    # --- reading

    def head(self) -> Answer:
        version = self.found()  # `list` is none
        headers = self.described(version)
        return self.unless(version) or Answer(200, {**headers, "Content-Length": str(version.size)})

    def found(self) -> Version:
        if (self.account, self.box_name) not in self.store.containers:
            raise not_found("Object")
        return self.store.version(self.box, self.name, self.query.get("version"))

    def described(self, version: Version) -> dict[str, str]:
        place = (self.account, self.box_name, self.name)
        return object_headers(self.store, self.box, place, version, self.reader, self.headers.get("host", ""))

    def unless(self, version: Version) -> Answer | None:
        """The conditions of a read."""
        etag, headers = self.store.etag(version), self.headers
        if "if-match" in headers and not listed(headers["if-match"], etag):
            raise precondition_failed()
        if "if-unmodified-since" in headers:
            then = parsedate_to_datetime(headers["if-unmodified-since"]).timestamp()
            if int(version.seconds) > then:
                raise precondition_failed("Resource has been modified")
        if "if-none-match" in headers and listed(headers["if-none-match"], etag):
            return Answer(304, {"ETag": etag})
        return None if self.since(version.seconds) else Answer(304)

    def get(self) -> Answer:
        if self.query.get("version") == "list":
            history = self.box.history.get(self.name)
            if history is None:
                raise not_found("Object")
            return as_json(200, {"versions": [[v.serial, v.timestamp] for v in history if not v.deleted]})
        version = self.found()
        refused = self.unless(version)
        if refused is not None:
            return refused
        headers = self.described(version)
        if "hashmap" in self.query:
            form = {
                "block_hash": "sha256",
                "hashes": list(version.hashes),
                "block_size": self.store.block_size,
                "bytes": version.size,
            }
            return Answer(200, headers, json.dumps(form).encode())
        headers.setdefault("Content-Disposition", f'inline; filename="{quoted(self.name)}"')
        return self.part(headers, self.store.read(version))

    def part(self, headers: dict[str, str], data: bytes) -> Answer:
        wanted = None if "if-range" in self.headers else ranges_in(self.headers.get("range"), len(data))
        if wanted is None:
            return Answer(200, headers, data)
        if len(wanted) > 1:
            boundary = uuid.uuid4().hex
            kind = {"Content-Type": f"multipart/byteranges; boundary={boundary}"}
            return Answer(206, {**headers, **kind}, several(data, wanted, boundary), chunked=True)
        (one,) = wanted
        told = {"Content-Range": f"bytes {one.start}-{one.stop - 1}/{len(data)}"}
        return Answer(206, {**headers, **told}, data[one.start : one.stop])

    # --- writing

    def put(self) -> Answer:
        if "content-length" not in self.headers and "transfer-encoding" not in self.headers:
            raise RefusedError(411, "lengthRequired", "Missing or invalid Content-Length header")
        for header, act in (("x-copy-from", self.copied), ("x-move-from", self.moved)):
            if header in self.headers:
                box = self.box
                self.store.check(box, self.name, self.headers)
                return act(self.name_in(self.headers[header], "X-Copy-From"), self.name)
        if "content-type" not in self.headers:
            raise RefusedError(411, "lengthRequired", "Missing Content-Type header")
        found = meta_in(self.headers)
        box = self.box
        self.store.check(box, self.name, self.headers)
        if "hashmap" in self.query:
            return self.put_hashmap(box, found)
        wanted = self.headers.get("etag")
        if wanted is not None and wanted.strip('"') != hashlib.md5(self.body).hexdigest():
            raise RefusedError(422, "unprocessableEntity", "Object ETag does not match")
        made = self.store.put_body(box, self.name, self.body, self.headers["content-type"], found, **self.more())
        return self.written(made)

    def more(self) -> dict[str, object]:
        names = ("Content-Encoding", "Content-Disposition")
        kept = {name: self.headers[name.lower()] for name in names if name.lower() in self.headers}
        return {"author": self.reader, "kept": kept}

    def put_hashmap(self, box: Container, meta: dict[str, str]) -> Answer:
        try:
            form = json.loads(self.body)
            size, hashes = int(form["bytes"]), tuple(text.lower() for text in form["hashes"])
        except (ValueError, TypeError, KeyError):
            raise bad_request("Invalid data formatting") from None
        kind = self.headers["content-type"]
        result = self.store.put_hashmap(box, self.name, size, hashes, kind, meta, **self.more())
        return self.written(result) if isinstance(result, Version) else as_json(409, result)

    def written(self, version: Version) -> Answer:
        self.share()
        return Answer(201, {"ETag": self.store.etag(version), "X-Object-Version": str(version.serial)})

    def share(self, name: str | None = None) -> bool:
        """Take sharing and publication over; True if there is any."""
        name = self.name if name is None else name
        shared, public = self.headers.get("x-object-sharing"), self.headers.get("x-object-public")
        if shared and not re.fullmatch(r"((read|write)=[^;]+;?\s*)+", shared):
            raise bad_request("Bad X-Object-Sharing header value: missing prefix")
        if shared is not None:
            self.box.sharing[name] = shared
        if shared == "":
            del self.box.sharing[name]
        if public is not None:
            self.box.public.pop(name, None)
        if public == "true":
            self.box.public[name] = uuid.uuid4().hex[:22]
        return shared is not None or public is not None

    def post(self) -> Answer:
        box = self.box
        self.store.version(box, self.name, None)
        self.store.check(box, self.name, self.headers)
        if "content-type" in self.headers:
            return self.change(box)
        found = meta_in(self.headers)
        if self.share() and not found:
            return Answer(202)
        changed = self.store.change_meta(box, self.name, found, "update" in self.query)
        return Answer(202, {"X-Object-Version": str(changed.serial)})

    def change(self, box: Container) -> Answer:
        """Append, overwrite, cut."""
        if "content-range" not in self.headers:
            raise bad_request("Missing Content-Range header")
        match = re.fullmatch(r"bytes (\*|(\d+)-(\d+))/(\*|\d+)", self.headers["content-range"])
        if match is None:
            raise RefusedError(416, "rangeNotSatisfiable", "Invalid Content-Range header")
        size = self.store.version(box, self.name, None).size
        offset = size if match[1] == "*" else int(match[2])
        data, source = self.body, self.headers.get("x-source-object")
        if source is not None:
            found = self.store.version(box, self.name_in(source, "X-Source-Object"), None)
            data = self.store.read(found)[: None if match[1] == "*" else int(match[3]) - offset + 1]
        elif match[1] != "*" and int(match[3]) - offset + 1 != len(data):
            raise bad_request("Content length does not match range length")
        if offset > size:
            raise RefusedError(416, "rangeNotSatisfiable", "Supplied offset is beyond object limits")
        cut = self.headers.get("x-object-bytes")
        changed = self.store.change(box, self.name, offset, data, None if cut is None else int(cut))
        return Answer(204, {"ETag": self.store.etag(changed), "X-Object-Version": str(changed.serial)})

    def copy(self) -> Answer:
        return self.transferred(self.copied)

    def move(self) -> Answer:
        return self.transferred(self.moved)

    def transferred(self, act: Callable[[str, str], Answer]) -> Answer:
        if "destination" not in self.headers:
            raise bad_request("Missing Destination header")
        target = self.name_in(self.headers["destination"], "Destination")
        if "x-source-version" not in self.headers:
            self.store.version(self.box, self.name, None)
        self.store.check(self.box, self.name, self.headers)
        return act(self.name, target)

    def copied(self, source: str, target: str) -> Answer:
        serial, into = self.headers.get("x-source-version"), self.target_box()
        names = self.box.below(source) if "delimiter" in self.query else [source]
        found = [self.store.version(self.source_box(), name, serial) for name in names]
        done = [
            self.store.copy(into, version, target + name[len(source) :], meta_in(self.headers), **self.kind())
            for name, version in zip(names, found, strict=True)
        ]
        return Answer(201, {"X-Object-Version": str(done[0].serial)})

    def moved(self, source: str, target: str) -> Answer:
        """Its version is what a tuple looks like as a text (M:1844)."""
        names = self.box.below(source) if "delimiter" in self.query else [source]
        done: list[Version] = []
        grown = 0
        for name in names:
            replaced = self.box.current(target + name[len(source) :])
            grown -= 0 if replaced is None else replaced.size
            old = self.store.version(self.box, name, None)
            more = {"meta": {**old.meta, **meta_in(self.headers)}, **self.kind()}
            done.append(self.store.move(self.box, name, target + name[len(source) :], **more))
        self.share(target)  # Synnefo's copy_or_move_object hands both on
        serials = ", ".join(str(version.serial) for version in done)
        size = sum(version.size for version in done)
        last = "0" if source == target else f"{size}L"
        return Answer(201, {"X-Object-Version": f"%28%5B{serials}%5D, {size + grown}L, {last}%29"})

    def kind(self) -> dict[str, object]:
        kind = self.headers.get("content-type")
        return {"author": self.reader, **({} if kind is None else {"content_type": kind})}

    def name_in(self, reference: str, header: str) -> str:
        """The name in `/CONTAINER/NAME`."""
        box_name, slash, name = unquote(reference).removeprefix("/").partition("/")
        if not reference.startswith("/") or not slash:
            raise bad_request(f"Invalid {header} header")
        self.other_box = box_name
        self.store.container(self.account, box_name)
        return name

    def target_box(self) -> Container:
        named = "destination" in self.headers
        return self.store.container(self.account, self.other_box if named else self.box_name)

    def source_box(self) -> Container:
        named = "destination" not in self.headers
        return self.store.container(self.account, self.other_box if named else self.box_name)

    def delete(self) -> Answer:
        """If-Match is ignored (F:1284-1299)."""
        until = self.query.get("until")
        if until is not None:
            self.store.purge(self.box, self.name, float(until))
            return Answer(204)
        for name in self.box.below(self.name) if "delimiter" in self.query else [self.name]:
            self.store.delete(self.box, name)
        return Answer(204)


def without_body(answer: Answer) -> Answer:
    """Of a HEAD."""
    return replace(answer, headers={"Content-Length": str(len(answer.body)), **answer.headers}, body=b"")
