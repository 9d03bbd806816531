"""What requests ask of the store: typed orders. `http/` makes them of what was sent, once; `store/` takes them. Pure.

Names are checked already, numbers are numbers, and nothing here says how HTTP spelt it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core.subtrees import Guard
from syncer.protocol.pithos.headers import MAX_META_ITEMS
from syncer.protocol.pithos.listing import MAX_ROWS
from syncer.protocol.pithos.metafilter import NO_FILTER, MetaFilter
from syncer.server.catalogue.conditions import UNCONDITIONAL, Conditions
from syncer.server.catalogue.schema import Settings, VersionRecord
from syncer.server.errors import BadRequest


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an object is, or may be; with an empty name, a container."""

    account: str
    container: str
    name: str


# --- objects


class ReadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which version of an object is to be opened.

    Attributes:
        place: Which object.
        version: Its serial; None for the current one.
        conditions: On it.
        joins: An object with a manifest has the content of its segments, as they are now.
        tells: Only what a HEAD tells is wanted: segments that a manifest lists are not looked at.
        reader: Another account, that must be let read it at this very moment; "": the owner.
    """

    place: Place
    version: int | None = None
    conditions: Conditions = UNCONDITIONAL
    joins: bool = False
    tells: bool = False
    reader: str = ""


class WriteOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A new object, or a new version of it, but for its content.

    Attributes:
        place: Which object.
        content_type: Of the object.
        meta: All its metadata: those it had are dropped, as in Pithos.
        conditions: On what it replaces.
        manifest: See `VersionRecord`.
        fields: See `VersionRecord`; those it had are dropped, too.
        md5: What the body must have, in hex; None: any.
        readers: Which accounts may read it from then on; None: as before.
    """

    place: Place
    content_type: str
    meta: Mapping[str, str]
    conditions: Conditions = UNCONDITIONAL
    manifest: str = ""
    fields: Mapping[str, str] = msgspec.field(default_factory=dict)
    md5: str | None = None
    readers: list[str] | None = None


class MetaOrder(msgspec.Struct, frozen=True, kw_only=True):
    """New metadata, and readers, of an object that stays as it is otherwise.

    Attributes:
        place: Which object.
        meta: Items; where the others stay, an empty value removes one.
        keeps_meta: Items, and header fields, that are not named stay.
        content_type: A new one, None to keep it.
        fields: Header fields that are told with it from then on; see `VersionRecord`.
        conditions: On the object.
        readers: Which accounts may read it from then on; None: as before.
    """

    place: Place
    meta: Mapping[str, str]
    keeps_meta: bool
    content_type: str | None = None
    fields: Mapping[str, str] = msgspec.field(default_factory=dict)
    conditions: Conditions = UNCONDITIONAL
    readers: list[str] | None = None


class DeleteOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be deleted.

    Attributes:
        place: Which object.
        conditions: On it.
        delimiter: What separates it from those below it, which go as well; "": it alone.
    """

    place: Place
    conditions: Conditions = UNCONDITIONAL
    delimiter: str = ""


class PurgeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which history is to be forgotten.

    Attributes:
        place: Of an object, or of all in a container.
        until_us: Versions up to this moment, but for current ones.
    """

    place: Place
    until_us: int


class TransferOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a move or a copy does besides.

    Attributes:
        source: Conditions on the object that is moved.
        destination: Conditions on what is under its new name.
        content_type: A new one, None to keep it.
        meta: Metadata that are added or replaced.
        fields: Header fields that are added or replaced; see `VersionRecord`.
        is_fresh: The metadata and header fields that it had are left behind.
        has_room: The quotas were looked at already, for all objects of a subtree together.
        readers: Which accounts may read it under its new name from then on; None: as what was there.
    """

    source: Conditions = UNCONDITIONAL
    destination: Conditions = UNCONDITIONAL
    content_type: str | None = None
    meta: Mapping[str, str] = msgspec.field(default_factory=dict)
    fields: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_fresh: bool = False
    has_room: bool = False
    readers: list[str] | None = None

    def applied_to(self, record: VersionRecord) -> VersionRecord:
        """A version with the new type and metadata.

        Raises:
            BadRequest: Too many metadata items.
        """
        return replace(
            record,
            content_type=record.content_type if self.content_type is None else self.content_type,
            meta=merged_meta({} if self.is_fresh else record.meta, self.meta),
            fields=self.fields if self.is_fresh else {**record.fields, **self.fields},
        )


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """A move or a copy.

    Attributes:
        source: From where.
        destination: To where.
        moves: Which of them.
        version: Of the source; None: the current one. An older one is only copied.
        order: What is done besides.
        delimiter: What separates the object from those below it, which go along; "": it alone.
        guard: The subtree must be exactly this one, and the destination free.
        joins: Of an object with a manifest, the content of its segments is copied, not the manifest.
        ranges: Which bytes are copied, as Range says; None: all.
    """

    source: Place
    destination: Place
    moves: bool
    version: int | None = None
    order: TransferOrder = TransferOrder()
    delimiter: str = ""
    guard: Guard | None = None
    joins: bool = False
    ranges: str | None = None


# --- containers


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing is to show, in byte order of the names (UTF-8).

    Attributes:
        marker: Only what is behind this name, which need not exist.
        end: Only what is before this name; "" for no end.
        prefix: Only names that begin so.
        delimiter: Names that have it behind the prefix are grouped: one row stands for all that agree up to and with
            the first one. "" groups nothing.
        groups_ends: Names that end with it there are in their group, too; else they are rows beside it.
        hides_groups: Leave the rows of groups out: what lies directly in a directory.
        limit: At most so many rows.
        visible: Whether a name may be shown at all.
        only_shared: Only what is shared with others, by itself or with a directory above it.
        until_us: What there was at this moment; None: what there is.
        meta: What the metadata must be.
        is_reverse: The last rows first: of all that is asked for, the last `limit`.
        name_bytes: Memory that a name takes in the reply beyond what each row is charged; None: none.
    """

    marker: str = ""
    end: str = ""
    prefix: str = ""
    delimiter: str = ""
    groups_ends: bool = False
    hides_groups: bool = False
    limit: int = MAX_ROWS
    visible: Callable[[str], bool] | None = None
    only_shared: bool = False
    until_us: int | None = None
    meta: MetaFilter = NO_FILTER
    is_reverse: bool = False
    name_bytes: Callable[[str], int] | None = None


class ChangesOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a client wants to know of what changed.

    Attributes:
        since: The version it knows.
        modified_us: Time of that version, as it was told; None: not checked.
        identity: UUID text of the container that it knows; None: not checked.
        limit: At most so many rows.
        moves: Subtrees that were moved as one are told so, instead of their objects.
        without: Names whose newest version is in these ascending ranges are left out.
    """

    since: int
    modified_us: int | None
    identity: str | None
    limit: int
    moves: bool = False
    without: tuple[range, ...] = ()


class SettingsOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is set for an account or a container.

    Attributes:
        quota_bytes: A new quota, 0 for none; None to leave it.
        keeps_history: None to leave it.
        meta: Items; an empty value removes one.
        replaces_meta: Drop the items that are not named.
    """

    quota_bytes: int | None = None
    keeps_history: bool | None = None
    meta: Mapping[str, str] = msgspec.field(default_factory=dict)
    replaces_meta: bool = False

    def applied_to(self, settings: Settings) -> Settings:
        """The settings afterwards.

        Raises:
            BadRequest: Too many metadata items.
        """
        return replace(
            settings,
            quota_bytes=settings.quota_bytes if self.quota_bytes is None else self.quota_bytes,
            keeps_history=settings.keeps_history if self.keeps_history is None else self.keeps_history,
            meta=merged_meta({} if self.replaces_meta else settings.meta, self.meta),
        )


NO_SETTINGS: Final = SettingsOrder()


def merged_meta(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Metadata with some items replaced; empty values remove theirs.

    Raises:
        BadRequest: Too many items.
    """
    merged = {key: value for key, value in {**old, **new}.items() if value}
    if len(merged) > MAX_META_ITEMS:
        raise BadRequest(f"at most {MAX_META_ITEMS} metadata items, not {len(merged)}")
    return merged
