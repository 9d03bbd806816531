"""The probe on a real directory; what it concludes is tested in core/test_folding.py."""

from __future__ import annotations

import os
from pathlib import Path

from syncer.core.folding import Folding
from syncer.local.folder.probe import probe_folding


def test_a_filesystem_that_tells_all_names_apart_folds_nothing_and_nothing_is_left(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert probe_folding(descriptor) == Folding()
    finally:
        os.close(descriptor)
    assert not list(tmp_path.iterdir())
