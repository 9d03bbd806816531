"""What is set for accounts and containers: metadata, quota, and whether history is kept. Inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.protocol.pithos.headers import MAX_META_ITEMS
from syncer.server.catalogue.catalogue import Change
from syncer.server.catalogue.containers import existing
from syncer.server.catalogue.schema import Settings, account_settings_key, container_settings_key
from syncer.server.errors import BadRequest


class SettingsOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a request sets.

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


def set_for_container(change: Change, account: str, container: str, order: SettingsOrder) -> None:
    """Change a container's settings. Older versions go when the next version of their object is made, not now.

    Raises:
        NotFound: There is no such container.
        BadRequest: Too many metadata items.
    """
    _, record = existing(change, account, container)
    before = change.container_settings(record.container_id)
    after = order.applied_to(before)
    if after != before:
        change.put_settings(container_settings_key(record.container_id), after)


def set_for_account(change: Change, account: str, order: SettingsOrder) -> None:
    """Change an account's settings.

    Raises:
        BadRequest: Too many metadata items.
    """
    before = change.account_settings(change.account(account))
    after = order.applied_to(before)
    if after != before:
        change.put_settings(account_settings_key(change.make_account(account)), after)


def set_quotas(change: Change, quotas: Mapping[str, int]) -> None:
    """Set the quotas of accounts; 0 for none."""
    for account, quota in quotas.items():
        account_id = change.account(account)
        if quota or account_id is not None:
            set_for_account(change, account, SettingsOrder(quota_bytes=quota))
