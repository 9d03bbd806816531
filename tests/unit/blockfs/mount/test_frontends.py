"""Which front-end serves a mount, and what is said if it can't."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import structlog

from blockfs.errors import KernelTooOldError, MountError
from blockfs.fuse.kernel.frontend import KernelFrontend
from blockfs.mount.choice import Choice
from blockfs.mount.frontends import after_refusal, loaded


@pytest.fixture
def without_pyfuse3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "blockfs.fuse.pyfuse3_frontend", raising=False)
    monkeypatch.setitem(sys.modules, "pyfuse3", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_each_is_loaded_by_its_name() -> None:
    assert loaded(Choice.KERNEL) is KernelFrontend
    assert loaded(Choice.PYFUSE3).__name__ == "Pyfuse3Frontend"


TOO_OLD = KernelTooOldError("4.19 is too old")


def test_auto_takes_our_own_and_goes_on_with_pyfuse3_where_the_kernel_is_too_old() -> None:
    assert loaded(Choice.AUTO) is KernelFrontend
    with structlog.testing.capture_logs() as logs:
        assert after_refusal(Choice.AUTO, TOO_OLD) is loaded(Choice.PYFUSE3)
    assert [(one["event"], one["reason"]) for one in logs] == [("mount.kernel_too_old", "4.19 is too old")]


def test_who_asks_for_our_own_gets_no_other() -> None:
    with pytest.raises(KernelTooOldError):
        after_refusal(Choice.KERNEL, TOO_OLD)


@pytest.mark.usefixtures("without_pyfuse3")
def test_auto_does_without_pyfuse3() -> None:
    assert loaded(Choice.AUTO) is KernelFrontend
    with pytest.raises(KernelTooOldError):
        after_refusal(Choice.AUTO, TOO_OLD)


@pytest.mark.usefixtures("without_pyfuse3")
def test_who_asks_for_pyfuse3_and_lacks_it_is_told_what_to_install_and_what_else_there_is() -> None:
    with pytest.raises(MountError, match=r"pyfuse3 is not installed, .*EXTRAS=fuse.*a compiler.*--frontend kernel"):
        loaded(Choice.PYFUSE3)
