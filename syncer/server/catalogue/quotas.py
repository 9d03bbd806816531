"""Quotas: may an object grow? Full sizes of the current objects count, whatever deduplication and history make of them.

Shrinking is always allowed, so that somebody who is over the quota can get below it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncer.server.catalogue.catalogue import Reading
from syncer.server.catalogue.containers import bytes_used
from syncer.server.catalogue.schema import ContainerRecord
from syncer.server.errors import OverQuota


def require_room(view: Reading, account: int, growth: Mapping[int, tuple[ContainerRecord, int]]) -> None:
    """Refuse what would exceed a quota.

    Args:
        view: The transaction that writes, or a snapshot for an early answer.
        account: Whose containers they are.
        growth: By container id: the container, and how many bytes more it will have.

    Raises:
        OverQuota: A container's quota, or the account's, is too small; in Pithos's words.
    """
    for container, more in growth.values():
        quota = view.container_settings(container.container_id).quota_bytes
        if quota and more > 0 and container.bytes_used + more > quota:
            usage = container.bytes_used + more
            raise OverQuota(f"Quota error: Container quota exceeded: limit: {quota}, usage: {usage}")
    total = sum(more for _, more in growth.values())
    quota = view.account_settings(account).quota_bytes
    if quota and total > 0:
        available = quota - bytes_used(view, account)
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
    settings = view.container_settings(container.container_id), view.account_settings(account)
    if more > 0 and any(one.quota_bytes for one in settings):
        require_room(view, account, {container.container_id: (container, more)})
