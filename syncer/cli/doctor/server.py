"""What `doctor` finds out about the server of a root: whether it answers, whose it is, and its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import trio

from syncer.cli.doctor import diagnosis
from syncer.cli.doctor.diagnosis import Check, Level, failed
from syncer.cli.registry.roots import LinkedRoot
from syncer.cli.session.opening import open_share
from syncer.core.paths import LAN_KEY, PRIVATE
from syncer.core.planner.safety import check_container
from syncer.engine.observe import container_identity
from syncer.engine.root_state import RootState
from syncer.errors import AuthError, NotFoundError, RemoteUnavailableError, RootIdentityError, SyncerError
from syncer.ports.remote import Counters, RemoteInfo
from syncer.remote.container.replies import Judge
from syncer.remote.container.requests import Requests
from syncer.remote.http.retry import RetryPolicy
from syncer.remote.http.transport import HttpTransport, Request
from syncer.remote.parallel import one_error
from syncer.remote.url import parse_url
from syncer.state.statedb import StateDB

ONCE: Final = RetryPolicy(attempts=2, first_delay_s=0.2, deadline_s=20)  # who asks wants to know how it is now


def checks(linked: LinkedRoot) -> Iterator[Check]:
    """The server of a container, and its clock."""
    try:
        token = linked.secret()
        with one_error():
            info, clock = trio.run(_ask, linked, token)
    except AuthError as error:
        yield failed("server", str(error), "`blocksync link` again with a token of that account")
    except RemoteUnavailableError as error:
        yield failed("server", str(error), "see that it runs and that nothing between here and it forbids the way")
    except NotFoundError as error:
        yield failed(
            "server", str(error), "was the container deleted? `link --relink` makes it anew and pushes everything"
        )
    except SyncerError as error:
        yield failed("server", str(error), "")
    else:
        yield identity(linked, info)
        yield clock


async def _ask(linked: LinkedRoot, token: str) -> tuple[RemoteInfo, Check]:
    settings = linked.record.settings
    remote = open_share(linked, policy=ONCE)
    try:
        info = await remote.open()
    finally:
        await remote.close()
    url = parse_url(linked.record.url)
    transport = HttpTransport(url, token, settings, Counters())
    try:
        sent_s = time.time()
        reply = await transport.send(Request(method="HEAD", target=url.container_path))
        clock = diagnosis.skew(reply.headers.get("date"), sent_s, time.time())
        await _sample(transport, Requests(url), Judge(url.origin, str(url)))
        return info, clock
    finally:
        transport.close()


async def _sample(transport: HttpTransport, make: Requests, judge: Judge) -> None:
    """Read the description of one object, if there is one: a server may be reachable and yet not one we understand."""
    page = make.list_page("", whole=False, limit=3)  # the first ones may be the share's key
    rows = judge.rows(judge.demand(page, await transport.send(page), 200, 204))
    for row in [row for row in rows if row.name.encode() not in {PRIVATE, LAN_KEY}][:1]:
        look = make.head(row.name)
        reply = judge.demand(look, await transport.send(look), 200, 404)
        if reply.status == 200:
            judge.state(reply)


def identity(linked: LinkedRoot, info: RemoteInfo) -> Check:
    """Whether the share is the one that was linked."""
    subject, opens = ("store", "its key opens it") if linked.in_repository else ("server", "the token is valid")
    try:
        with StateDB.open(linked.state, read_only=True) as database:
            known = RootState(database).container()
    except (SyncerError, OSError):
        known = None
    if known is not None:
        try:
            check_container(known, container_identity(info, known.seen))
        except RootIdentityError as error:
            return failed(subject, str(error), "is the URL still right? `link --relink` merges with another container")
    return Check(subject=subject, level=Level.OK, text=f"reachable, {opens}; {info.text}")
