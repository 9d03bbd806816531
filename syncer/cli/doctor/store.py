"""What `doctor` finds out about the store of a root that is linked to a repository.

All but Swift tell the time only to who writes: a small file is made for that, and removed. So it also shows that we
may write there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import trio

from syncer.cli.doctor import diagnosis
from syncer.cli.doctor.diagnosis import Check, Level, failed
from syncer.cli.doctor.server import ONCE, identity
from syncer.cli.registry.roots import LinkedRoot
from syncer.cli.session.opening import open_share
from syncer.errors import (
    AuthError,
    CorruptionError,
    FormatTooNewError,
    NotAllowedError,
    NotFoundError,
    RemoteUnavailableError,
    SyncerError,
    UsageError,
)
from syncer.ports.remote import RemoteInfo
from syncer.remote.parallel import one_error
from syncer.remote.repository.access import Access, store_of


def checks(linked: LinkedRoot) -> Iterator[Check]:
    """The store, and the key that was kept for it."""
    url = linked.record.url
    try:
        with one_error():
            info, clock = trio.run(_ask, linked)
    except AuthError as error:
        yield failed("store", str(error), "`blocksync link` again, with credentials that the store takes")
    except RemoteUnavailableError as error:
        yield failed("store", str(error), "see that it runs and that nothing between here and it forbids the way")
    except NotFoundError as error:
        yield failed("store", str(error), f"see that it is the right place, and mounted; `blocksync repo init {url}`")
    except FormatTooNewError as error:
        yield failed("store", str(error), "install the newer blocksync")
    except CorruptionError as error:
        yield Check(subject="store", level=Level.FAIL, text=str(error), remedy="`blocksync repo check`", damaged=True)
    except NotAllowedError as error:
        yield failed("store", str(error), "see who may read and write there")
    except UsageError as error:
        yield failed("store", str(error), "`blocksync link` again where the credentials are")
    except SyncerError as error:
        yield failed("store", str(error), "")
    else:
        yield identity(linked, info)
        yield clock


async def _ask(linked: LinkedRoot) -> tuple[RemoteInfo, Check]:
    remote = open_share(linked, policy=ONCE)
    try:
        info = await remote.open()
        await remote.list_objects()  # heads, commits and nodes of trees can be read, and opened with our key
    finally:
        await remote.close()
    access = Access.read(linked.secret())
    store = store_of(linked.record.url, access.environment, settings=linked.record.settings, policy=ONCE)
    try:
        await store.open()
        sent_s = time.time()
        theirs_ns = await store.now_ns()
        return info, diagnosis.skew_of(theirs_ns / 1e9, sent_s, time.time())
    finally:
        await store.close()
