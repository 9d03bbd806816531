"""Headers of Pithos and of our extensions: names, values, conditions, ranges, dates. Pure.

Values and metadata keys with characters beyond printable ASCII travel percent-encoded, as Pithos demands. Header names
are matched without regard to case; metadata keys are therefore lower case on our side of this module.
"""

from __future__ import annotations

import base64
import re
import struct
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from blockfs.blocks.ids import ID_SIZE, ObjectHash
from syncer.core import xattrs
from syncer.core.model import Kind, Meta, meta_of

AUTH_TOKEN: Final = "X-Auth-Token"  # noqa: S105 - the name of a header, not a token

CONTAINER_BLOCK_SIZE: Final = "X-Container-Block-Size"
CONTAINER_BLOCK_HASH: Final = "X-Container-Block-Hash"
CONTAINER_OBJECT_COUNT: Final = "X-Container-Object-Count"
CONTAINER_BYTES_USED: Final = "X-Container-Bytes-Used"
CONTAINER_VERSIONING: Final = "X-Container-Policy-Versioning"
"""`auto`: older versions stay; `none`: they don't."""
CONTAINER_QUOTA: Final = "X-Container-Policy-Quota"
"""Bytes, 0: no bound."""
CONTAINER_META_PREFIX: Final = "X-Container-Meta-"
CONTAINER_IDENTITY: Final = "X-Container-Identity"
"""Extension: UUID text of this container's life. Another one means: deleted and made again, or another server."""
CONTAINER_VERSION: Final = "X-Container-Version"
"""Extension: serial of the container's last change, deletions included; exact where Last-Modified has one second."""
ATOMIC_CONDITIONS: Final = "X-Blocksync-Atomic"
"""Extension on container replies, value "1": conditions are atomic with the write on every mutating call."""
CONTAINER_VERSION_TIMESTAMP: Final = "X-Container-Version-Timestamp"
"""Extension: time of that change in full, as X-Object-Version-Timestamp. Both together are where `changes` begins."""
EXTENSIONS: Final = "X-Blocksync-Extensions"
"""What the server can beyond Pithos: tokens, separated by commas, on container replies."""
EXTENSION_BLOCK_LISTS: Final = "block-lists"
EXTENSION_BULK: Final = "bulk"
EXTENSION_BULK_READ: Final = "bulk-read"
EXTENSION_CHANGES: Final = "changes"
EXTENSION_DELTA: Final = "hashmap-delta"
EXTENSION_SUBTREES: Final = "subtree-moves"
EXTENSION_WITHOUT: Final = "changes-without"

ACCOUNT_CONTAINER_COUNT: Final = "X-Account-Container-Count"
ACCOUNT_OBJECT_COUNT: Final = "X-Account-Object-Count"
ACCOUNT_BYTES_USED: Final = "X-Account-Bytes-Used"
ACCOUNT_QUOTA: Final = "X-Account-Policy-Quota"
ACCOUNT_META_PREFIX: Final = "X-Account-Meta-"

OBJECT_HASH: Final = "X-Object-Hash"
OBJECT_UUID: Final = "X-Object-UUID"
OBJECT_VERSION: Final = "X-Object-Version"
OBJECT_VERSION_TIMESTAMP: Final = "X-Object-Version-Timestamp"
OBJECT_MODIFIED_BY: Final = "X-Object-Modified-By"
OBJECT_META_PREFIX: Final = "X-Object-Meta-"
OBJECT_SHARING: Final = "X-Object-Sharing"
OBJECT_SHARED_BY: Final = "X-Object-Shared-By"
"""`CONTAINER/NAME` of the directory whose sharing holds for the object, too."""
OBJECT_PUBLIC: Final = "X-Object-Public"
"""Plain Pithos: the URL under which everybody can read it; "true" in a request makes one."""
OBJECT_ALLOWED_TO: Final = "X-Object-Allowed-To"
"""To a reader: what may be done."""
OBJECT_BYTES: Final = "X-Object-Bytes"
"""On a POST of a part: where the object ends afterwards at the latest."""

COPY_FROM: Final = "X-Copy-From"
MOVE_FROM: Final = "X-Move-From"
SOURCE_OBJECT: Final = "X-Source-Object"
SOURCE_ACCOUNT: Final = "X-Source-Account"
SOURCE_VERSION: Final = "X-Source-Version"
DESTINATION: Final = "Destination"

IF_OBJECT_VERSION: Final = "X-If-Object-Version"
"""Extension: decimal serial; the object of the URL must be at exactly this version, 0: must not exist. Atomic."""
IF_SOURCE_VERSION: Final = "X-If-Source-Version"
"""Extension on PUT with X-Move-From or X-Copy-From: the same for the source."""
IF_DESTINATION_VERSION: Final = "X-If-Destination-Version"
"""Extension on MOVE and COPY: the same for the destination."""

IF_SUBTREE: Final = "X-If-Subtree"
"""Extension on MOVE with `delimiter=/`: the guard of what is moved (`subtrees`); the destination must be free."""
SUBTREE_FIRST: Final = "X-Subtree-First-Version"
"""Extension on its reply: the first of the serials that the move gave out."""

FILE_TYPE: Final = "application/octet-stream"
DIRECTORY_TYPE: Final = "application/directory"
SYMLINK_TYPE: Final = "application/x-symlink"  # an object whose content is the link text
_DIRECTORY_TYPES: Final = frozenset({DIRECTORY_TYPE, "application/folder"})

MAX_META_ITEMS: Final = 32  # these three as in Pithos
MAX_META_KEY_CHARACTERS: Final = 128
MAX_META_VALUE_CHARACTERS: Final = 256

META_MTIME: Final = "mtime-ns"
META_MODE: Final = "mode"
META_XATTRS: Final = "xattrs-"
"""Followed by a number from 0: pieces of base64 (url alphabet, no padding) of a format byte, a length and
`core.xattrs.pack`. What is beyond the length is left over from a larger set: a change of metadata removes no items."""
META_DEVICE: Final = "device"
"""Of which device a content is: the first digits of the object hash, a space, the device's name. Whoever does not know
this item may carry it on to another content: of that it says nothing."""
_DEVICE_DIGITS: Final = 8
_MAX_DEVICE_CHARACTERS: Final = 64
_XATTR_HEAD: Final = struct.Struct(">BH")
_XATTR_FORMAT: Final = 1

_VALUE_SAFE: Final = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}~"  # printable ASCII but "%" and the space
_NAME_SAFE: Final = "!#$%&'*+^`|"  # of a header's name, besides what is never quoted
_DECIMAL: Final = re.compile(r"\d{1,19}", re.ASCII)
_INT64: Final = range(-(1 << 63), 1 << 63)


class HeaderError(ValueError):
    """A header's value is not what it should be. The message fits into a fault."""


class ObjectState(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one object, as headers and listing rows tell it.

    Attributes:
        size_bytes: Length of the object.
        object_hash: Merkle root. Names content only together with the size.
        uuid: Survives new versions and moves; "" where a server does not tell.
        version: Global serial of the server.
        modified_us: Microseconds since the epoch when this version was made.
        content_type: E.g. "application/octet-stream"; see `kind_of`.
        modified_by: Account that made it.
        meta: X-Object-Meta-* by lower-case key. None: not told (listings of plain Pithos).
        md5: Of the content, where the server knows it. Does not make states differ.
    """

    size_bytes: int
    object_hash: ObjectHash
    uuid: str
    version: int
    modified_us: int
    content_type: str
    modified_by: str = ""
    meta: Mapping[str, str] | None = None
    md5: bytes | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectState) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        """What two tellings of one state agree on."""
        return (
            self.size_bytes, self.object_hash, self.uuid, self.version, self.modified_us, self.content_type,
            self.modified_by, self.meta,
        )  # fmt: skip

    @property
    def etag(self) -> str:
        """Object hash in hex, as ETag and x_object_hash show it."""
        return self.object_hash.hex()


class ETags(msgspec.Struct, frozen=True, kw_only=True):
    """Value of If-Match or If-None-Match: any, or one of a set."""

    any: bool
    tags: frozenset[str]

    def matches(self, etag: str | None) -> bool:
        """Whether the current entity tag (None: there is no object) is meant."""
        return etag is not None and (self.any or etag in self.tags)


def kind_of(content_type: str) -> Kind:
    """What an object is, by its content type; parameters such as a charset don't count."""
    essence = content_type.partition(";")[0].strip().lower()
    if essence in _DIRECTORY_TYPES:
        return Kind.DIRECTORY
    return Kind.SYMLINK if essence == SYMLINK_TYPE else Kind.FILE


def content_type_of(kind: Kind) -> str:
    """The content type we write for a kind."""
    return {Kind.FILE: FILE_TYPE, Kind.DIRECTORY: DIRECTORY_TYPE, Kind.SYMLINK: SYMLINK_TYPE}[kind]


def encode_meta(meta: Meta) -> dict[str, str]:
    """File metadata as object metadata: nanoseconds in decimal, permission bits in octal; None is left out."""
    items: dict[str, str] = {}
    if meta.mtime_ns is not None:
        items[META_MTIME] = str(meta.mtime_ns)
    mode = meta.full_mode
    if mode is not None:
        items[META_MODE] = format(mode, "o")
    if meta.xattrs is not None:
        packed = xattrs.pack(meta.xattrs)
        raw = _XATTR_HEAD.pack(_XATTR_FORMAT, len(packed)) + packed
        text = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
        for number, at in enumerate(range(0, len(text), MAX_META_VALUE_CHARACTERS)):
            items[f"{META_XATTRS}{number}"] = text[at : at + MAX_META_VALUE_CHARACTERS]
    return items


def decode_meta(items: Mapping[str, str]) -> Meta:
    """Object metadata as file metadata. What is missing or makes no sense is None: no opinion."""
    mtime_ns = _integer(items.get(META_MTIME), 10)
    mode = _integer(items.get(META_MODE), 8)
    return meta_of(
        mode if mode is not None and 0 <= mode <= 0o7777 else None,
        mtime_ns=mtime_ns if mtime_ns is not None and mtime_ns in _INT64 else None,
        xattrs=_xattrs(items),
    )


def encode_device(device: str, etag: str) -> dict[str, str]:
    """Of which device a content is, as object metadata; nothing if it is not told."""
    return {META_DEVICE: f"{etag[:_DEVICE_DIGITS]} {device[:_MAX_DEVICE_CHARACTERS]}"} if device else {}


def device_of(state: ObjectState) -> str | None:
    """Of which device a version's content is; empty: nobody knows; None: its metadata are not told."""
    if state.meta is None:
        return None
    digits, _, device = state.meta.get(META_DEVICE, "").partition(" ")
    return sys.intern(device[:_MAX_DEVICE_CHARACTERS]) if digits == state.etag[:_DEVICE_DIGITS] else ""


def foreign_meta(items: Mapping[str, str] | None) -> dict[str, str]:
    """Object metadata that are not ours."""
    ours = (META_MTIME, META_MODE, META_DEVICE)
    return {key: value for key, value in (items or {}).items() if key not in ours and not key.startswith(META_XATTRS)}


def mtime_of(modified_us: int) -> int | None:
    """The time of a version as an mtime in nanoseconds; None if it is not told, or none that a file can have."""
    mtime_ns = modified_us * 1000
    return mtime_ns if modified_us and mtime_ns in _INT64 else None


def _xattrs(items: Mapping[str, str]) -> xattrs.Xattrs | None:
    pieces: list[str] = []
    while (piece := items.get(f"{META_XATTRS}{len(pieces)}")) is not None:
        pieces.append(piece)
    try:
        head = _unpadded("".join(pieces)[:4])
        form, length = _XATTR_HEAD.unpack(head)
        text = "".join(pieces)[: -(-8 * (_XATTR_HEAD.size + length) // 6)]
        return xattrs.unpack(_unpadded(text)[_XATTR_HEAD.size :]) if form == _XATTR_FORMAT else None
    except (ValueError, struct.error):
        return None


def _unpadded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def quote_value(text: str) -> str:
    """Write a header value; spaces, "%" and everything beyond ASCII are percent-encoded."""
    return quote(text, safe=_VALUE_SAFE)


def unquote_value(text: str) -> str:
    """Read a header value.

    Raises:
        HeaderError: Escapes that are not UTF-8.
    """
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise HeaderError(f"header value {text[:100]!r} is not percent-encoded UTF-8") from None


def _utf8_value(text: str) -> str:
    """Read a header value that is UTF-8 as it is."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        raise HeaderError(f"header value {text[:100]!r} is not UTF-8") from None


def meta_headers(meta: Mapping[str, str], prefix: str = OBJECT_META_PREFIX, *, quoted: bool = True) -> dict[str, str]:
    """Metadata as headers.

    Args:
        meta: By lower-case key. An empty value removes the key in a POST with `?update`.
        prefix: Whose: an object's, a container's or an account's.
        quoted: Percent-encoded, as in Pithos; else as OpenStack's clients sent it, in the bytes of UTF-8. A value with
            control characters, which no header can hold, is quoted all the same.
    """
    if quoted:
        return {prefix + quote(key, safe="").title(): quote_value(value) for key, value in meta.items()}
    return {prefix + quote(key, safe=_NAME_SAFE).title(): _plain_value(value) for key, value in meta.items()}


def _plain_value(text: str) -> str:
    if any(character < " " or character == "\x7f" for character in text):
        return quote_value(text)
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def meta_from_headers(
    headers: Iterable[tuple[str, str]], prefix: str = OBJECT_META_PREFIX, *, quoted: bool = True
) -> dict[str, str]:
    """Metadata from headers, keys in lower case.

    Args:
        headers: Names and values.
        prefix: Whose: an object's, a container's or an account's.
        quoted: See `meta_headers`.

    Raises:
        HeaderError: Too many items, an empty or too long key, a too long value, broken quoting, not UTF-8.
    """
    read = unquote_value if quoted else _utf8_value
    prefix = prefix.lower()
    meta: dict[str, str] = {}
    for name, value in headers:
        if not name.lower().startswith(prefix):
            continue
        key = read(name[len(prefix) :]).lower()
        if not 0 < len(key) <= MAX_META_KEY_CHARACTERS:
            raise HeaderError(f"a metadata key has 1 to {MAX_META_KEY_CHARACTERS} characters, not {len(key)}")
        meta[key] = read(value)
        if len(meta[key]) > MAX_META_VALUE_CHARACTERS:
            raise HeaderError(f"a metadata value has at most {MAX_META_VALUE_CHARACTERS} characters: {key!r}")
    if len(meta) > MAX_META_ITEMS:
        raise HeaderError(f"at most {MAX_META_ITEMS} metadata items, not {len(meta)}")
    return meta


def object_headers(state: ObjectState) -> dict[str, str]:
    """Describe a version in a reply, all but Content-Length (a partial reply has another one)."""
    return {
        "ETag": f'"{state.etag}"',
        "Last-Modified": http_date(state.modified_us),
        "Content-Type": state.content_type,
        "Available": "1",
        OBJECT_HASH: state.etag,
        OBJECT_UUID: state.uuid,
        OBJECT_VERSION: str(state.version),
        OBJECT_VERSION_TIMESTAMP: timestamp_text(state.modified_us),
        OBJECT_MODIFIED_BY: quote_value(state.modified_by),
        **meta_headers(state.meta or {}),
    }


def object_state(headers: Iterable[tuple[str, str]], size_bytes: int | None = None) -> ObjectState:
    """Read what a HEAD or GET says about an object.

    Args:
        headers: Of the reply.
        size_bytes: Size of the object where Content-Length is not it (a partial reply).

    Raises:
        HeaderError: A header that must be there is missing or makes no sense.
    """
    items = list(headers)
    known = {name.lower(): value for name, value in items}
    length = _required(known, "Content-Length") if size_bytes is None else str(size_bytes)
    return ObjectState(
        size_bytes=parse_decimal("Content-Length", length),
        object_hash=parse_object_hash(_required(known, OBJECT_HASH)),
        uuid=known.get(OBJECT_UUID.lower(), ""),
        version=parse_decimal(OBJECT_VERSION, _required(known, OBJECT_VERSION)),
        modified_us=_moment(known.get(OBJECT_VERSION_TIMESTAMP.lower(), "0")),
        content_type=known.get("content-type", FILE_TYPE),
        modified_by=unquote_value(known.get(OBJECT_MODIFIED_BY.lower(), "")),
        meta=meta_from_headers(items),
    )


def parse_decimal(name: str, text: str) -> int:
    """Read a non-negative decimal header value of at most 19 digits.

    Raises:
        HeaderError: Not such a number.
    """
    if not _DECIMAL.fullmatch(text):
        raise HeaderError(f"{name}: expected a decimal number, got {text[:40]!r}")
    return int(text)


def parse_object_hash(text: str) -> ObjectHash:
    """Read an object hash in hex.

    Raises:
        HeaderError: Not 64 hex digits.
    """
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != ID_SIZE or len(text) != 2 * ID_SIZE:
        raise HeaderError(f"expected an object hash of {2 * ID_SIZE} hex digits, got {text[:80]!r}")
    return ObjectHash(raw)


def parse_etags(value: str) -> ETags:
    """Read If-Match or If-None-Match: `*`, or entity tags, quoted or bare, weak or not, separated by commas."""
    items = [item.strip() for item in value.split(",")]
    tags = [item.removeprefix("W/").strip('"') for item in items]
    return ETags(any="*" in items, tags=frozenset(tag for tag in tags if tag))


def timestamp_text(modified_us: int) -> str:
    """Seconds since the epoch with six decimals, as x_object_version_timestamp shows them."""
    return f"{modified_us // 1_000_000}.{modified_us % 1_000_000:06d}"


def parse_timestamp(text: str) -> int:
    """Read such seconds as microseconds, whatever the number of decimals.

    Raises:
        HeaderError: Not a decimal number.
    """
    seconds, _, fraction = text.partition(".")
    return parse_decimal("timestamp", seconds) * 1_000_000 + parse_decimal("timestamp", fraction[:6].ljust(6, "0"))


def _moment(text: str) -> int:
    """Read X-Object-Version-Timestamp as microseconds: decimals from our server, an HTTP date from Synnefo's.

    Raises:
        HeaderError: Neither.
    """
    seconds = parse_http_date(text) if "," in text else None
    return parse_timestamp(text) if seconds is None or seconds < 0 else seconds * 1_000_000


def http_date(modified_us: int) -> str:
    """Write a time as Last-Modified does; parts of a second are dropped."""
    return format_datetime(datetime.fromtimestamp(modified_us // 1_000_000, UTC), usegmt=True)


def parse_http_date(value: str) -> int | None:
    """Read an HTTP date as seconds since the epoch; None for anything else, which then counts as absent."""
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # a year that no datetime can hold
        return None
    return int(date.replace(tzinfo=date.tzinfo or UTC).timestamp())


def _required(known: Mapping[str, str], name: str) -> str:
    """A header that every Pithos reply of this kind has."""
    value = known.get(name.lower())
    if value is None:
        raise HeaderError(f"the reply has no {name}")
    return value


def _integer(text: str | None, base: int) -> int | None:
    """A number that somebody wrote into metadata; None if it is none."""
    try:
        return int(text, base) if text is not None and len(text) <= 20 else None
    except ValueError:
        return None
