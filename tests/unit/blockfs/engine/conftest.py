from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.blockfs.engine import volumes


@pytest.fixture(params=["copied", "adopted"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seal by copying, and by making segments of staging files, however small.

    With a patch of its own: that of a test must be undone before what this fixture stands before.
    """
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "adopted":
            patched.setattr(volumes, "ADOPT_BYTES", 1)
        yield
