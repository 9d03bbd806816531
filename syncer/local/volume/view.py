"""Which of a mounted volume's paths are synced: its `.blocksyncignore` files, read through the mount. Blocking."""

from __future__ import annotations

import os
from collections.abc import Mapping

from syncer.core.ignore import IGNORE_FILE, IgnoreRules
from syncer.core.model import RelPath
from syncer.core.paths import is_hidden, split
from syncer.errors import LocalChangedError
from syncer.local.rules import read_rules
from syncer.local.safe_open import open_directory
from syncer.local.volume.tree import HIDDEN, VolumeNode, is_directory
from syncer.ports.localvalues import Problem


class VolumeView:
    """Which of a volume's paths are shown to the engine.

    Attributes:
        rules: What is ignored, with the `.blocksyncignore` files of the mount.
        unknown: Folders whose rules can't be read: what they hide must not be sent.
        problems: Why.
        holding: Directories with something in them that is not shown.
    """

    def __init__(self, root: int, rules: IgnoreRules, paths: Mapping[int, list[RelPath]]) -> None:
        """Read the files of rules through the mount, from the top down."""
        self.rules = rules
        self.unknown: list[RelPath] = []
        self.problems: list[Problem] = []
        self.holding: set[RelPath] = set()
        self._paths = paths
        files = [path for seen in paths.values() for path in seen if split(path)[1] == IGNORE_FILE]
        for path in sorted(files, key=lambda path: (path.count(b"/"), path)):
            if not is_hidden(path) and not rules.hides(path, directory=False):
                self._read(root, split(path)[0])

    def _read(self, root: int, folder: RelPath) -> None:
        try:
            descriptor = open_directory(root, folder)
            try:
                self.rules.add(folder, read_rules(descriptor, folder))
            finally:
                os.close(descriptor)
        except (OSError, LocalChangedError) as error:
            text = error.strerror if isinstance(error, OSError) else error.reason
            self.unknown.append(folder)
            reason = f"its {IGNORE_FILE.decode()} can't be read ({text}); left alone until it can"
            self.problems.append(Problem(path=folder, reason=reason))

    def shown(self, ino: int, node: VolumeNode) -> list[RelPath]:
        """The paths of an inode that are synced."""
        seen: list[RelPath] = []
        for path in self._paths.get(ino, ()):
            if is_hidden(path) or self._is_unknown(path):
                continue
            if self.rules.hides(path, directory=is_directory(node)):
                self.holding.add(split(path)[0])
            else:
                seen.append(path)
        return seen

    def _is_unknown(self, path: RelPath) -> bool:
        return any(not folder or path.startswith(folder + b"/") for folder in self.unknown)

    def hidden_directories(self, nodes: Mapping[int, VolumeNode]) -> set[int]:
        """The ignored directories, and all below them."""
        return {
            ino
            for ino, node in nodes.items()
            if is_directory(node)
            for path in self._paths.get(ino, ())
            if path.startswith(HIDDEN + b"/") or self.rules.hides(path, directory=True)
        }
