"""Find out which names a filesystem takes for one: make a file, look for it under other names. Blocking."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from syncer.core.folding import Folding
from syncer.local.folder.private import make_anew
from syncer.local.safe_open import naming

_PREFIX: Final = "probe-fold."


def probe_folding(directory: int) -> Folding:
    """What the filesystem of a directory of ours folds.

    Args:
        directory: Descriptor of a directory in which nobody else makes such names. It must be the root's own
            `.blocksync/tmp`: ext4 folds by directory, and new directories do as the one above.
    """

    def finds(made: str, asked: str) -> bool:
        name = os.fsencode(_PREFIX + made)
        try:
            with naming(directory):
                os.close(make_anew(name, directory))
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.EILSEQ}:  # a name that the filesystem can't hold at all
                return False
            raise
        try:
            os.stat(os.fsencode(_PREFIX + asked), dir_fd=directory, follow_symlinks=False)
        except OSError:
            return False
        else:
            return True
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)

    return decide(finds)


def decide(finds: Callable[[str, str], bool]) -> Folding:
    """Ask whether what is made under the first name is found under the second."""
    if not finds("a", "A"):
        return Folding(forms=finds("\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"))
    return Folding(
        case=True,
        full_case=finds("\N{LATIN SMALL LETTER SHARP S}", "ss"),
        forms=finds("\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"),
    )
