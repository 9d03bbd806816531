"""Where the page listens: at every address that a browser takes its name for, so that nobody else can."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from syncer.errors import LockedError, UsageError
from syncer.ui import serving
from syncer.ui.serving import listen

BOTH = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


@contextmanager
def listening(address: str) -> Iterator[dict[str, int]]:
    """Host → port."""
    with ExitStack() as closing:
        found = [closing.enter_context(each) for each in listen(address)]
        yield {each.getsockname()[0]: each.getsockname()[1] for each in found}


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_one_port_of_both(host: str) -> None:
    with listening(f"{host}:0") as found:
        assert found.keys() == BOTH.keys()
        assert len(set(found.values())) == 1


@pytest.mark.parametrize("taken", BOTH)
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_port_that_somebody_has_at_one_of_them_is_in_use(host: str, taken: str) -> None:
    """His would be shown the link by a browser that tries that one first."""
    with socket.create_server((taken, 0), family=BOTH[taken]) as other:
        port = other.getsockname()[1]
        with pytest.raises(LockedError, match=str(port)):
            listen(f"{host}:{port}")
    with listening(f"{host}:{port}"):  # nothing was left open
        pass


def test_where_the_system_chooses_it_chooses_again(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([True, False])

    def is_taken(host: str, port: int) -> socket.socket:
        if host == "::1" and next(draws):
            raise LockedError(f"the address [::1]:{port}", None)
        return opened(host, port)

    opened = serving._open
    monkeypatch.setattr(serving, "_open", is_taken)
    with listening("127.0.0.1:0") as found:
        assert found.keys() == BOTH.keys()


def test_without_ipv6_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(serving._LOOPBACK, "::1", 1000)  # a family that no kernel has
    with listening("127.0.0.1:0") as found:
        assert list(found) == ["127.0.0.1"]
    with pytest.raises(UsageError):
        listen("[::1]:0")


def test_where_browsers_do_not_look_for_it_it_is_not() -> None:
    with pytest.raises(UsageError, match="this machine only"):
        listen("127.0.0.2:0")
