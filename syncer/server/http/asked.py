"""One request as it was sent, but for its body: what its URL names, what its fields and parameters say. Pure.

Only the modules that make orders of it read this (`object_orders`, `container_orders`) and the table that chooses among
them (`calls.routes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from syncer.protocol import swift
from syncer.protocol.pithos import headers, sharing
from syncer.protocol.pithos.listing import MAX_ROWS
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.orders import Place
from syncer.server.errors import BadRequest, TooLarge
from syncer.server.http.urls import Target

MAX_CONTENT_TYPE_CHARACTERS: Final = 256


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, authenticated.

    Attributes:
        method: HTTP's.
        target: What its URL names.
        account: Whose token it carries.
        fields: Its header fields by lower-case name; the first of equal names counts.
        pairs: All of them, as they came.
    """

    method: str
    target: Target
    account: str
    fields: Mapping[str, str]
    pairs: Sequence[tuple[str, str]]

    @property
    def is_foreign(self) -> bool:
        """Whether the URL names what belongs to another account."""
        return self.target.account != self.account

    @property
    def is_update(self) -> bool:
        """Whether metadata that a POST does not name stay. OpenStack's do, but for objects."""
        return "update" in self.target.parameters or (self.target.is_swift and not self.target.name)

    @property
    def length(self) -> int | None:
        """Bytes of the body; None if it does not say (chunks).

        Raises:
            headers.HeaderError: Not a decimal number.
        """
        if "transfer-encoding" in self.fields:
            return None
        return headers.parse_decimal("Content-Length", self.fields.get("content-length") or "0")

    @property
    def place(self) -> Place:
        """The object, or the container, that the URL names."""
        return Place(account=self.target.account, container=self.target.container, name=self.target.name)

    @property
    def wants_json(self) -> bool:
        """Whether a listing is to be JSON rather than text.

        Raises:
            BadRequest: Another format.
        """
        wanted = self.parameter("format")
        if wanted not in {None, "json", "text"}:
            raise BadRequest(f"This server does not speak the format {wanted!r}, only json and text")
        return wanted == "json" or (wanted is None and self.header("Accept") == "application/json")

    @property
    def form(self) -> swift.Form:
        """In which form a listing is wanted.

        Raises:
            BadRequest: One that Pithos does not have, not below OpenStack's path.
        """
        if self.target.is_swift:
            return swift.form_of(self.parameter("format"), self.header("Accept"))
        return swift.Form.JSON if self.wants_json else swift.Form.PLAIN

    @property
    def is_reverse(self) -> bool:
        """Whether a listing of OpenStack's is to go back."""
        return self.target.is_swift and self.says_yes(self.parameter("reverse"))

    @staticmethod
    def says_yes(value: str | None) -> bool:
        """Whether a value is one of OpenStack's words for yes."""
        return (value or "").lower() in swift.TRUE

    @property
    def until_us(self) -> int | None:
        """The moment that `until` names, to the end of that second; None without it.

        Raises:
            headers.HeaderError: Not whole seconds since the epoch.
        """
        seconds = self.number_parameter("until")
        return None if seconds is None else seconds * 1_000_000 + 999_999

    @property
    def delimiter(self) -> str:
        """What makes a request be about all below a name as well, or a listing group names; "" for neither."""
        return self.target.parameters.get("delimiter", "")

    def parameter(self, name: str) -> str | None:
        """A parameter's value; None without it."""
        return self.target.parameters.get(name)

    def number_parameter(self, name: str) -> int | None:
        """A parameter's value as a number, e.g. a version serial; None without it.

        Raises:
            headers.HeaderError: Not a decimal number.
        """
        value = self.target.parameters.get(name)
        return None if value is None else headers.parse_decimal(name, value)

    def header(self, name: str) -> str | None:
        """A header's value; None without it."""
        return self.fields.get(name.lower())

    def number(self, name: str) -> int | None:
        """A header's value as a number.

        Raises:
            headers.HeaderError: Not a decimal number.
        """
        value = self.header(name)
        return None if value is None else headers.parse_decimal(name, value)

    def conditions(self) -> Conditions:
        """On the object that the URL names.

        Raises:
            headers.HeaderError: A version that is no number.
        """
        match, none_match = self.header("If-Match"), self.header("If-None-Match")
        unmodified, modified = self.header("If-Unmodified-Since"), self.header("If-Modified-Since")
        return Conditions(
            if_match=None if match is None else headers.parse_etags(match),
            if_none_match=None if none_match is None else headers.parse_etags(none_match),
            if_version=self.number(headers.IF_OBJECT_VERSION),
            if_unmodified_since=None if unmodified is None else headers.parse_http_date(unmodified),
            if_modified_since=None if modified is None else headers.parse_http_date(modified),
            by_md5=self.target.is_swift,
        )

    def meta(self, prefix: str = headers.OBJECT_META_PREFIX) -> dict[str, str]:
        """X-Object-Meta-* of the request, or those of another prefix.

        Raises:
            headers.HeaderError: Too many or too long.
        """
        return headers.meta_from_headers(self.pairs, prefix, quoted=not self.target.is_swift)

    def kept_fields(self) -> dict[str, str]:
        """Header fields that are kept with the object, by their names of `swift.KEPT_FIELDS`.

        Below Pithos's path, where nobody asked for that, a too long one is left out.

        Raises:
            headers.HeaderError: A too long one.
        """
        if self.target.is_swift:
            return swift.kept_fields(self.fields)
        short = {name: value for name, value in self.fields.items() if len(value) <= swift.MAX_FIELD_CHARACTERS}
        return swift.kept_fields(short)

    def content_type(self) -> str | None:
        """Content-Type, None without one.

        Raises:
            headers.HeaderError: Too long, or not printable.
        """
        value = self.header("Content-Type")
        if value is not None and (len(value) > MAX_CONTENT_TYPE_CHARACTERS or not value.isprintable()):
            raise headers.HeaderError(
                f"Content-Type: expected at most {MAX_CONTENT_TYPE_CHARACTERS} printable characters"
            )
        return value or None

    def readers(self) -> list[str] | None:
        """Who may read from now on; None: as before.

        Raises:
            headers.HeaderError: Not a list of accounts that may read.
        """
        value = self.header(headers.OBJECT_SHARING)
        return None if value is None else sharing.parse_sharing(value)

    def page(self) -> tuple[str, str, int]:
        """Marker, prefix and limit of a listing. OpenStack's may be 0, and one that is no number counts as none.

        Raises:
            BadRequest: A limit of 0.
            headers.HeaderError: A limit that is not a number.
        """
        is_none = self.target.is_swift and not (self.parameter("limit") or "").isdecimal()
        limit = None if is_none else self.number_parameter("limit")
        if limit == 0 and not self.target.is_swift:
            raise BadRequest("limit: expected a positive number, got 0")
        marker, prefix = self.parameter("marker") or "", self.parameter("prefix") or ""
        return marker, prefix, MAX_ROWS if limit is None else min(limit, MAX_ROWS)


def header_fields(raw: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Header fields as text.

    Args:
        raw: As an ASGI server gives them, names in lower case.
    """
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


def require_at_most(length: int | None, limit_bytes: int) -> None:
    """Refuse a body that says it is too long, before any of it is read.

    Args:
        length: What it says, if it does.
        limit_bytes: Longest body that is taken.

    Raises:
        TooLarge: It does.
    """
    if length is not None and length > limit_bytes:
        raise TooLarge(f"The body has more than {limit_bytes} bytes")
