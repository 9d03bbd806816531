"""python -m tests.interop [--json] [CLIENT…]: real clients of others against a real `blocksync serve`.

One line a check; exit 1 if one failed. The clients are kept in .interop/ of the clone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.interop import clients, curl_checks, kamaki_checks, sdk_checks, shared_checks, swift_checks
from tests.interop.curl_checks import Curl
from tests.interop.kamaki_checks import Kamaki, Scene
from tests.interop.sdk_checks import Sdk
from tests.interop.session import Session
from tests.interop.shared_checks import Both
from tests.interop.swift_checks import Rclone, Swift

HOME: Final = Path(__file__).parents[2] / ".interop"

Check = tuple[str, Callable[[], None]]


def kamaki_suite(session: Session) -> Iterator[Check]:
    """kamaki 0.16 under Python 2.7."""
    program = clients.kamaki(HOME)
    alice, bob = Kamaki(session, program), Kamaki(session, program, "bob")
    for number, act in enumerate(kamaki_checks.CHECKS):
        container = f"k{number}"

        def check(act: Callable[[Scene], None] = act, container: str = container) -> None:
            alice("container", "create", container)
            act(Scene(alice, bob, container))

        yield act.__name__, check


def shared_suite(session: Session) -> Iterator[Check]:
    """kamaki and our client in one container."""
    kamaki = Kamaki(session, clients.kamaki(HOME))
    for number, act in enumerate(shared_checks.CHECKS):
        container = f"b{number}"

        def check(act: Callable[[Both], None] = act, container: str = container) -> None:
            kamaki("container", "create", container)
            act(Both(session, kamaki, container))

        yield act.__name__, check


def swift_suite(session: Session) -> Iterator[Check]:
    """python-swiftclient."""
    program = clients.swiftclient(HOME)
    for number, act in enumerate(swift_checks.SWIFT_CHECKS):
        swift = Swift(session, program, f"s{number}")

        def check(act: Callable[[Swift], None] = act, swift: Swift = swift) -> None:
            swift("post", swift.container)
            act(swift)

        yield act.__name__, check


def sdk_suite(session: Session) -> Iterator[Check]:
    """openstacksdk."""
    program = clients.openstacksdk(HOME)
    for number, act in enumerate(sdk_checks.CHECKS):
        sdk = Sdk(session, program, f"o{number}")

        def check(act: Callable[[Sdk], None] = act, sdk: Sdk = sdk) -> None:
            act(sdk)

        yield act.__name__, check


def rclone_suite(session: Session) -> Iterator[Check]:
    """rclone's swift backend."""
    program = clients.rclone()
    for number, act in enumerate(swift_checks.RCLONE_CHECKS):
        rclone = Rclone(session, program, f"r{number}")

        def check(act: Callable[[Rclone], None] = act, rclone: Rclone = rclone) -> None:
            rclone("mkdir", rclone.remote)
            act(rclone)

        yield act.__name__, check


def curl_suite(session: Session) -> Iterator[Check]:
    """curl."""
    for number, act in enumerate(curl_checks.CHECKS):
        curl = Curl(session, f"u{number}")

        def check(act: Callable[[Curl], None] = act, curl: Curl = curl) -> None:
            curl("-X", "PUT", curl.url)
            act(curl)

        yield act.__name__, check


SUITES: Final[dict[str, Callable[[Session], Iterator[Check]]]] = {
    "kamaki": kamaki_suite,
    "shared": shared_suite,
    "swift": swift_suite,
    "sdk": sdk_suite,
    "rclone": rclone_suite,
    "curl": curl_suite,
}


def main() -> int:
    """Run the checks; returns the exit code."""
    os.environ["BLOCKSYNC_PEERS"] = "off"  # nothing is sent on this machine's network
    parser = argparse.ArgumentParser(prog="python -m tests.interop")
    parser.add_argument("--json", action="store_true", help="one JSON line a check")
    parser.add_argument("client", nargs="*", help=f"of {', '.join(SUITES)}; default: all")
    options = parser.parse_args()
    unknown = set(options.client) - SUITES.keys()
    if unknown:
        parser.error(f"no such client: {min(unknown)}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="interop-") as folder, Session(Path(folder)) as session:
        for client in options.client or SUITES:
            for name, act in SUITES[client](session):
                began = time.monotonic()
                problem = _problem(act)
                failed += bool(problem)
                _tell(client, name, problem, time.monotonic() - began, as_json=options.json)
    return 1 if failed else 0


def _problem(act: Callable[[], None]) -> str:
    """What went wrong, "" for nothing."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever a check stumbles over is its result
        traceback.print_exc(file=sys.stderr)
        return f"{type(error).__name__}: {error}"
    return ""


def _tell(client: str, name: str, problem: str, seconds: float, *, as_json: bool) -> None:
    if as_json:
        fields = {"client": client, "check": name, "ok": not problem, "problem": problem, "seconds": round(seconds, 1)}
        print(json.dumps({"type": "check", "version": 1, **fields}), flush=True)
        return
    line = f"{'FAILED' if problem else 'ok':6} {client} {name} ({seconds:.1f} s)"
    print(f"{line}: {problem.splitlines()[0]}" if problem else line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
