"""Hostile bytes from the kernel's side: each request is answered once, whatever is in it; nothing raises."""

from __future__ import annotations

import pytest

from blockfs.fuse.kernel import serving
from tests import effort
from tests.fuzz.kernel import TARGETS
from tests.fuzz.search import Target, search, share

_SEED = 15


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_the_kernel_sends_is_answered(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.log, "warning", lambda *_told, **_fields: None, raising=False)  # of each that lies
    inputs = share(target, TARGETS, effort.count("kernel requests"))
    assert search(target, inputs, _SEED).inputs == inputs


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_valid_requests_are_answered_too(target: Target) -> None:
    for seed in target.seeds:
        target.read(seed)
