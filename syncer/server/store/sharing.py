"""What accounts let each other read: what requests ask for, each a transaction or a snapshot. Thread-safe, synchronous.

Reading gives possession: an account that has got an object's content or hashmap may name its blocks from then on, as if
it had sent them. A block's hash alone never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from blockfs.blocks.ids import ID_SIZE
from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.listing import ContainerRow, ObjectRow, SubdirectoryRow
from syncer.server.catalogue import containers, contents, listings, objects, sharing
from syncer.server.catalogue.catalogue import Catalogue, Change
from syncer.server.catalogue.commits import Commits
from syncer.server.catalogue.conditions import UNCONDITIONAL, Conditions
from syncer.server.catalogue.orders import Place, Selection
from syncer.server.errors import Forbidden

_GRANT_BYTES = 16 * ID_SIZE  # keys of leaves that become a reader's in one transaction

_REMEMBERED = 10_000  # versions whose blocks a reader has already; some 1 MB


class Shares:
    """Sharing, on a store's catalogue."""

    def __init__(self, catalogue: Catalogue, commits: Commits) -> None:
        self._catalogue = catalogue
        self._commits = commits
        self._granted: dict[tuple[str, int], None] = {}

    def share(self, place: Place, readers: Sequence[str], conditions: Conditions = UNCONDITIONAL) -> None:
        """Let these accounts and no others read an object."""
        self._commits.run(lambda change: objects.share(change, place, readers, conditions))

    def told(self, place: Place) -> tuple[str, list[str]] | None:
        """What replies about an object tell: the nearest name whose sharing holds for it, and who may read."""
        with self._catalogue.reading() as view:
            account = view.account(place.account)
            record = None if account is None else view.container(account, place.container)
            return None if record is None else next(sharing.granted_by(view, record.container_id, place.name), None)

    def require_readable(self, reader: str, place: Place, version: int | None) -> None:
        """Go on for a reader, or refuse, without telling whether there is such an object.

        Only the current version is shared: what an object was before may be nobody's business.

        Raises:
            Forbidden: Not shared with this account, or an older version.
        """
        with self._catalogue.reading() as view:
            objects.require_readable(view, reader, place, version)

    def sharers(self, reader: str) -> list[tuple[str, int]]:
        """Accounts that share something with another, by name, and the last change in those containers."""
        latest: dict[str, int] = {}
        with self._catalogue.reading() as view:
            for one in sharing.shared_with(view, reader):
                _, record = containers.existing(view, one.owner, one.container)
                if one.owner != reader:
                    latest[one.owner] = max(latest.get(one.owner, 0), record.modified_us)
        return sorted(latest.items())

    def containers(self, reader: str, owner: str) -> list[ContainerRow]:
        """Containers of another account that have something shared with a reader. Sizes are not told.

        Raises:
            Forbidden: There is nothing.
        """
        with self._catalogue.reading() as view:
            names = [one.container for one in sharing.shared_with(view, reader, view.account(owner) or 0)]
            rows = [row for row in containers.all_of(view, owner) if row.name in names]
        if not rows:
            raise Forbidden("This account shares nothing with you")
        return [replace(row, count=names.count(row.name), size_bytes=0) for row in rows]

    def listing(
        self, reader: str, owner: str, container: str, wanted: Selection, *, most_bytes: int | None = None
    ) -> list[ObjectRow | SubdirectoryRow]:
        """What a reader may see of a container.

        Raises:
            Forbidden: There is nothing.
            Heavy: The rows take more than `most_bytes`.
        """
        with self._catalogue.reading() as view:
            account = view.account(owner)
            shown = [one.name for one in sharing.shared_with(view, reader, account or 0) if one.container == container]
            record = None if account is None else view.container(account, container)
            if record is None or not shown:
                raise Forbidden("Nothing in this container is shared with you")
            found = record.container_id
            below = tuple(f"{name}/" for name in shown)

            def visible(name: str) -> bool:
                return (name in shown or name.startswith(below)) and sharing.may_read(view, reader, found, name)

            rows = listings.select(view, record, replace(wanted, visible=visible), most_bytes)
        # Who else may read is the owner's business.
        return [replace(row, sharing="") if isinstance(row, ObjectRow) else row for row in rows]

    def possess(self, reader: str, state: ObjectState, leaf_keys: bytes) -> None:
        """Note that an account has read an object: its blocks are its own, too."""
        if (reader, state.version) in self._granted:
            return
        with self._catalogue.reading() as view:
            needed = contents.lacks(view, view.account(reader), leaf_keys)
        for at in range(0, len(leaf_keys) if needed else 0, _GRANT_BYTES):  # short transactions: others write, too
            self._commits.run(partial(_grant, reader, leaf_keys[at : at + _GRANT_BYTES]))
        if len(self._granted) >= _REMEMBERED:
            self._granted.clear()
        self._granted[reader, state.version] = None


def _grant(reader: str, leaf_keys: bytes, change: Change) -> None:
    contents.grant(change, change.make_account(reader), leaf_keys)
