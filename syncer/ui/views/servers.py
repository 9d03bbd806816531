"""Servers that run here: what they keep, and for whom. Pure."""

from __future__ import annotations

import msgspec

from syncer.ui.ports import AccountFacts, ContainerFacts, ServerFacts, StoreFacts
from syncer.ui.words import counted, moment, name, plain, size


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """A server: its name in addresses, its folder, where it serves."""

    ident: str
    directory: str
    url: str


class ContainerView(msgspec.Struct, frozen=True, kw_only=True):
    """A container: its name, how many objects, their size, versions and what old ones come to, when it changed."""

    name: str
    objects: str
    size: str
    versions: str
    old: str
    modified: str


class AccountView(msgspec.Struct, frozen=True, kw_only=True):
    """An account.

    Attributes:
        name: Of the account.
        use: What it stores, of what it may, in words.
        percent: Of its quota; None: it has none.
        containers: All of them.
    """

    name: str
    use: str
    percent: int | None
    containers: tuple[ContainerView, ...]


class StoreView(msgspec.Struct, frozen=True, kw_only=True):
    """What a server keeps: in words, by account, what is not known, and whether all versions were counted."""

    summary: str
    accounts: tuple[AccountView, ...]
    trouble: str
    is_counted: bool


def view_server(facts: ServerFacts) -> ServerView:
    """A server."""
    return ServerView(ident=facts.ident, directory=name(facts.directory), url=plain(facts.url))


def view_store(facts: StoreFacts, now_s: float) -> StoreView:
    """What one keeps."""
    versions = counted(facts.versions, "version", "versions")
    return StoreView(
        summary=f"{versions} of objects, deletions among them; {size(facts.stored_bytes)} on the disk, "
        f"in blocks of {size(facts.block_size)}",
        accounts=tuple(_account(each, now_s) for each in facts.accounts),
        trouble=plain(facts.trouble),
        is_counted=all(each.is_counted for account in facts.accounts for each in account.containers),
    )


def _account(facts: AccountFacts, now_s: float) -> AccountView:
    used = sum(each.size_bytes for each in facts.containers)
    quota = facts.quota_bytes
    return AccountView(
        name=plain(facts.name),
        use=f"{size(used)} of {size(quota)}" if quota else f"{size(used)}, no quota",
        percent=min(100, 100 * used // quota) if quota else None,
        containers=tuple(_container(each, now_s) for each in facts.containers),
    )


def _container(facts: ContainerFacts, now_s: float) -> ContainerView:
    more = "" if facts.is_counted else "over "
    return ContainerView(
        name=plain(facts.name),
        objects=counted(facts.objects, "object", "objects"),
        size=size(facts.size_bytes),
        versions=more + counted(facts.versions, "version", "versions"),
        old=more + size(facts.old_bytes),
        modified=moment(facts.modified_s, now_s),
    )
