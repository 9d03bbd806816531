"""What a request about an account or a container asks for: its URL and its fields, read into a typed order. Pure.

The order of the checks is what a client sees of a request with two faults: keep it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncer.protocol import swift
from syncer.protocol.extensions import changes
from syncer.protocol.pithos import headers
from syncer.protocol.pithos.metafilter import NO_FILTER, parse_filter
from syncer.server.catalogue.orders import NO_SETTINGS, ChangesOrder, PurgeOrder, Selection, SettingsOrder
from syncer.server.errors import BadRequest, Forbidden, NotAllowed
from syncer.server.http.asked import Asked

BULK_DELETE: Final = "bulk-delete"

_POLICY_PREFIX: Final = "x-container-policy-"
_POLICIES: Final = frozenset({headers.CONTAINER_QUOTA.lower(), headers.CONTAINER_VERSIONING.lower()})
_VERSIONING: Final = {"auto": True, "none": False}
_GROUP_PREFIX: Final = "x-account-group-"
_SETTINGS_PREFIXES: Final = (_POLICY_PREFIX, headers.CONTAINER_META_PREFIX.lower())


class ListingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which containers of an account, or objects of a container, are wanted.

    Attributes:
        selection: Which.
        form: How it is told.
        since: Only if the container has changed in a later second, since the epoch; None: in any case.
    """

    selection: Selection
    form: swift.Form
    since: int | None = None


class WaitOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in a container.

    Attributes:
        changes: Since when.
        wait_s: If nothing did, the answer waits so long for something.
    """

    changes: ChangesOrder
    wait_s: float


def account_settings(asked: Asked) -> SettingsOrder:
    """POST of an account: its metadata; with ?update those not named stay."""
    group = next((name for name, _ in asked.pairs if name.startswith(_GROUP_PREFIX)), None)
    if group is not None:
        raise BadRequest(f"This server does not support groups of accounts ({group!r})")
    _require_supported(asked)
    return SettingsOrder(meta=_settings_meta(asked, headers.ACCOUNT_META_PREFIX), replaces_meta=not asked.is_update)


def bulk_deletion(asked: Asked) -> bool:
    """DELETE or POST of an account with ?bulk-delete: whether the result is to be JSON.

    Raises:
        NotAllowed: It is to be deleted itself, or not by a client of OpenStack's.
    """
    if not asked.target.is_swift or BULK_DELETE not in asked.target.parameters:
        text = "An account is not deleted; ?bulk-delete is for OpenStack's clients, below /swift/v1"
        raise NotAllowed(text, {"Allow": "GET, HEAD, POST"})
    return swift.form_of(None, asked.header("Accept")) is swift.Form.JSON


def containers(asked: Asked) -> ListingOrder:
    """GET of an account. Pithos groups no containers."""
    form = asked.form
    _, prefix, limit = asked.page()
    marker, end = _bounds(asked)
    selection = Selection(
        marker=marker,
        end=end,
        prefix=prefix,
        delimiter=asked.delimiter if asked.target.is_swift else "",
        limit=limit,
        is_reverse=asked.is_reverse,
    )
    return ListingOrder(selection=selection, form=form)


def listing(asked: Asked) -> ListingOrder:
    """GET of a container.

    `path` is Pithos's for "directly in this directory". Nothing is published here: `public` alone lists nothing.
    """
    form = asked.form
    _, prefix, limit = asked.page()
    marker, end = _bounds(asked)
    parameters, delimiter = asked.target.parameters, asked.delimiter
    path, is_swift = parameters.get("path", ""), asked.target.is_swift
    in_path = "path" in parameters if is_swift else bool(path)
    if in_path:
        prefix, delimiter = path, "/"
    if prefix and delimiter and not prefix.endswith(delimiter) and (in_path or not is_swift):
        prefix += delimiter  # a directory; in Pithos, with a delimiter, any prefix is
    selection = Selection(
        marker=marker,
        end=end,
        prefix=prefix,
        delimiter=delimiter,
        groups_ends=is_swift,
        hides_groups=in_path,
        limit=limit,
        only_shared="shared" in parameters,
        until_us=asked.until_us,
        meta=parse_filter(parameters["meta"]) if "meta" in parameters else NO_FILTER,
        visible=(lambda _name: False) if "public" in parameters and "shared" not in parameters else None,
        is_reverse=asked.is_reverse,
        name_bytes=swift.xml_bytes if form is swift.Form.XML else None,
    )
    since = asked.header("If-Modified-Since") if selection.until_us is None else None
    return ListingOrder(selection=selection, since=None if since is None else headers.parse_http_date(since), form=form)


def _bounds(asked: Asked) -> tuple[str, str]:
    """Behind which name a listing begins and before which it ends. One that goes back begins before its marker."""
    marker = asked.parameter("marker") or ""
    end = (asked.parameter("end_marker") or "") if asked.target.is_swift else ""
    return (end, marker) if asked.is_reverse else (marker, end)


def shared_listing(asked: Asked) -> ListingOrder:
    """The same for a reader.

    Raises:
        Forbidden: What changed, and what was, is the owner's.
    """
    if "changes" in asked.target.parameters:
        raise Forbidden("Only the owner of a container is told what changes in it")
    if "until" in asked.target.parameters:
        raise Forbidden("Only the current version of an object is shared")
    return listing(asked)


def wait(asked: Asked) -> WaitOrder:
    """GET of a container with ?changes&since=V&wait=S."""
    parameters = asked.target.parameters
    since = asked.number_parameter("since")
    if since is None:
        raise BadRequest("changes: expected since=VERSION, 0 for all that there is")
    _, _, limit = asked.page()
    timestamp = parameters.get("timestamp")
    order = ChangesOrder(
        since=since,
        modified_us=None if timestamp is None else headers.parse_timestamp(timestamp),
        identity=parameters.get("identity"),
        limit=limit,
        moves="moves" in parameters,
        without=changes.decode_ranges(parameters["without"]) if "without" in parameters else (),
    )
    return WaitOrder(changes=order, wait_s=float(min(asked.number_parameter("wait") or 0, changes.MAX_WAIT_S)))


def settings(asked: Asked) -> SettingsOrder:
    """PUT of a container, or POST without a body: X-Container-Meta-* and X-Container-Policy-*.

    Metadata that are not named stay with PUT, and with ?update.
    """
    _require_supported(asked)
    for name, _ in asked.pairs:
        if name.startswith(_POLICY_PREFIX) and name not in _POLICIES:
            raise BadRequest(f"This server does not support the header {name!r}")
    versioning = asked.header(headers.CONTAINER_VERSIONING)
    if versioning is not None and versioning not in _VERSIONING:
        raise BadRequest(f"{headers.CONTAINER_VERSIONING}: expected auto or none, got {versioning[:40]!r}")
    return SettingsOrder(
        quota_bytes=asked.number(headers.CONTAINER_QUOTA),
        keeps_history=None if versioning is None else _VERSIONING[versioning],
        meta=_settings_meta(asked, headers.CONTAINER_META_PREFIX),
        replaces_meta=asked.method == "POST" and not asked.is_update,
    )


def _require_supported(asked: Asked) -> None:
    """Refuse what OpenStack's clients may ask of a container or an account, and does not happen here."""
    if not asked.target.is_swift:
        return
    for name in (*swift.REFUSED_FIELDS, *swift.ACCESS_FIELDS):
        if asked.header(name):
            raise BadRequest(f"This server does not support the header {name!r}")


def _settings_meta(asked: Asked, prefix: str) -> dict[str, str]:
    """What is set, and with OpenStack's X-Remove-… what is removed."""
    removed = asked.meta(prefix.replace("X-", "X-Remove-", 1)) if asked.target.is_swift else {}
    return {**dict.fromkeys(removed, ""), **asked.meta(prefix)}


def has_blocks(asked: Asked) -> bool:
    """Whether a POST of a container is about blocks: there are some, or it says so and sets nothing.

    OpenStack's never is: a body means nothing there.
    """
    if asked.target.is_swift:
        return False
    if asked.length != 0:
        return True
    says_so = asked.header("Content-Type") == headers.FILE_TYPE and asked.is_update
    return says_so and not any(name.startswith(_SETTINGS_PREFIXES) for name, _ in asked.pairs)


def post_blocks(asked: Asked) -> bool:
    """POST of a container with a body: whether the ids are to be told in JSON."""
    if settings(asked) != NO_SETTINGS:
        raise BadRequest("To store blocks, POST with ?update&format=json and without metadata and policies")
    if asked.header("Content-Type") != headers.FILE_TYPE:
        raise BadRequest(f"Content-Type: expected exactly {headers.FILE_TYPE}; nothing was stored")
    return asked.wants_json


def purge(asked: Asked) -> PurgeOrder:
    """DELETE of history: a container's, or an object's."""
    until_us = asked.until_us
    assert until_us is not None
    if asked.target.name and asked.delimiter:
        raise BadRequest("until and delimiter don't go together")
    return PurgeOrder(place=asked.place, until_us=until_us)
