"""Which front-end serves a mount, and what is said if it can't."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from blockfs.errors import MountError
from blockfs.fuse.kernel.frontend import KernelFrontend
from blockfs.mount.choice import Choice
from blockfs.mount.frontends import loaded


@pytest.fixture
def without_pyfuse3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "blockfs.fuse.pyfuse3_frontend", raising=False)
    monkeypatch.setitem(sys.modules, "pyfuse3", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_each_is_loaded_by_its_name() -> None:
    assert loaded(Choice.KERNEL) is KernelFrontend
    assert loaded(Choice.PYFUSE3).__name__ == "Pyfuse3Frontend"


def test_auto_takes_pyfuse3_for_now() -> None:
    assert loaded(Choice.AUTO) is loaded(Choice.PYFUSE3)


@pytest.mark.usefixtures("without_pyfuse3")
def test_auto_does_without_pyfuse3() -> None:
    assert loaded(Choice.AUTO) is KernelFrontend


@pytest.mark.usefixtures("without_pyfuse3")
def test_who_asks_for_pyfuse3_and_lacks_it_is_told_what_to_install_and_what_else_there_is() -> None:
    with pytest.raises(MountError, match=r"pyfuse3 is not installed: .*`fuse` extra.*--frontend kernel"):
        loaded(Choice.PYFUSE3)
