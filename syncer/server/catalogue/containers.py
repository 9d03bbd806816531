"""Accounts and containers, and what is set for them: what a transaction reads and writes.

Quotas: full sizes of the current objects count, whatever deduplication and history make of them. Shrinking is always
allowed, so that somebody who is over the quota can get below it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from syncer.protocol.pithos.listing import ContainerRow
from syncer.server.catalogue.catalogue import Change, Reading
from syncer.server.catalogue.orders import SettingsOrder
from syncer.server.catalogue.schema import (
    ID,
    SERIAL,
    ContainerRecord,
    Settings,
    account_settings_key,
    container_settings_key,
)
from syncer.server.errors import Conflict, NotFound, OverQuota

MAX_BYTES: Final = 1 << 63
"""Of a container, quota or not: its row has eight bytes for them. A sum that does not fit would undo the transaction,
with what other accounts wrote in it."""


class AccountSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What HEAD of an account tells."""

    containers: int
    objects: int
    bytes_used: int
    modified_us: int
    settings: Settings


def existing(view: Reading, account: str, container: str) -> tuple[int, ContainerRecord]:
    """An account's id and one of its containers.

    Raises:
        NotFound: There is no such container.
    """
    account_id = view.account(account)
    record = None if account_id is None else view.container(account_id, container)
    if account_id is None or record is None:
        raise NotFound("Container does not exist")
    return account_id, record


def all_of(view: Reading, account: str, after: str = "", prefix: str = "") -> Iterator[ContainerRow]:
    """An account's containers in byte order of their names."""
    account_id = view.account(account)
    if account_id is None:
        return
    head = ID.pack(account_id)
    start = head + (after.encode("utf-8") + b"\0" if after else b"")
    for key, raw in view.rows("containers", head + prefix.encode("utf-8"), start):
        record = ContainerRecord.decode(raw)
        yield ContainerRow(
            name=key[ID.size :].decode("utf-8"),
            count=record.object_count,
            size_bytes=record.bytes_used,
            modified_us=record.modified_us,
        )


def summary(view: Reading, account: str) -> AccountSummary:
    """Sums over an account's containers."""
    rows = list(all_of(view, account))
    return AccountSummary(
        containers=len(rows),
        objects=sum(row.count for row in rows),
        bytes_used=sum(row.size_bytes for row in rows),
        modified_us=max((row.modified_us for row in rows), default=0),
        settings=view.account_settings(view.account(account)),
    )


def _bytes_used(view: Reading, account: int) -> int:
    """Sum of the sizes of an account's current objects."""
    return sum(ContainerRecord.decode(raw).bytes_used for _, raw in view.rows("containers", ID.pack(account)))


def create(change: Change, account: str, container: str, uuid: bytes) -> bool:
    """Make a container.

    Args:
        change: The transaction.
        account: Whose.
        container: Its name.
        uuid: Its identity, if it is made.

    Returns:
        False if it exists already.
    """
    account_id = change.account(account)
    if account_id is not None and change.container(account_id, container) is not None:
        return False
    now_us = change.stamp_us()
    record = ContainerRecord(
        container_id=change.next_node(),
        uuid=uuid,
        object_count=0,
        bytes_used=0,
        version=0,
        modified_us=now_us,
        created_us=now_us,
    )
    change.put_container(change.make_account(account), container, record)
    return True


def delete(change: Change, account: str, container: str) -> None:
    """Delete an empty container and its history. Its rows are removed later, by the sweep.

    Raises:
        NotFound: There is no such container.
        Conflict: It has objects.
    """
    account_id, record = existing(change, account, container)
    if record.object_count:
        raise Conflict("Container is not empty")
    change.delete_container(account_id, container)
    change.touched.add(record.container_id)
    change.put_settings(container_settings_key(record.container_id), None)
    change.put("doomed", SERIAL.pack(record.container_id), b"")


def record_change(
    record: ContainerRecord, *, objects: int, size_bytes: int, version: int, modified_us: int
) -> ContainerRecord:
    """A container after a change of one of its objects.

    Args:
        record: Before.
        objects: How many more there are.
        size_bytes: How many more bytes they have.
        version: Serial of the change.
        modified_us: Its time.
    """
    return ContainerRecord(  # not `replace`, which takes four times as long, for each object of a bulk
        container_id=record.container_id,
        uuid=record.uuid,
        object_count=record.object_count + objects,
        bytes_used=record.bytes_used + size_bytes,
        version=version,
        modified_us=modified_us,
        created_us=record.created_us,
    )


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


def require_room(view: Reading, account: int, growth: Mapping[int, tuple[ContainerRecord, int]]) -> None:
    """Refuse what would exceed a quota, or what a container can hold at all.

    Args:
        view: The transaction that writes, or a snapshot for an early answer.
        account: Whose containers they are.
        growth: By container id: the container, and how many bytes more it will have.

    Raises:
        OverQuota: A container's quota, or the account's, is too small; in Pithos's words.
    """
    for container, more in growth.values():
        _require_countable(container, more)
        quota = view.container_settings(container.container_id).quota_bytes
        if quota and more > 0 and container.bytes_used + more > quota:
            usage = container.bytes_used + more
            raise OverQuota(f"Quota error: Container quota exceeded: limit: {quota}, usage: {usage}")
    total = sum(more for _, more in growth.values())
    quota = view.account_settings(account).quota_bytes
    if quota and total > 0:
        available = quota - _bytes_used(view, account)
        if total > available:
            raise OverQuota(
                "Resource Limit Exceeded for your account.",
                details="Limit for resource 'Storage space' exceeded for your account. "
                f"Available: {max(0, available)}, Requested: {total}",
            )


def require_room_in(view: Reading, account: int, container: ContainerRecord, more: int) -> None:
    """The same for one container.

    Raises:
        OverQuota: See `require_room`.
    """
    _require_countable(container, more)
    settings = view.container_settings(container.container_id), view.account_settings(account)
    if more > 0 and any(one.quota_bytes for one in settings):
        require_room(view, account, {container.container_id: (container, more)})


def _require_countable(container: ContainerRecord, more: int) -> None:
    usage = container.bytes_used + more
    if more > 0 and usage >= MAX_BYTES:
        raise OverQuota(f"A container holds less than 8 EiB, this one would have {usage} bytes; use another one")
