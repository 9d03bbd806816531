"""What a part of the soak has found: JSON lines in a file, progress on the terminal."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "soak.jsonl"


class Report:
    """The report of one part."""

    def __init__(self, part: str, path: Path = RESULTS) -> None:
        self.part = part
        self.path = path

    def record(self, name: str, **figures: Any) -> None:
        """Append a line: what was done, and the counts, seconds and failures seen."""
        self.append({"type": "soak", "version": 1, "part": self.part, "name": name, **figures})
        self.progress(f"{name}: " + ", ".join(f"{key}={value}" for key, value in figures.items()))

    def append(self, line: dict[str, Any]) -> None:
        """Append any line. Parts share the file: one write each."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)

    def progress(self, text: str) -> None:
        """Tell the terminal how far it is."""
        print(f"{time.strftime('%H:%M:%S')} {self.part}: {text}", flush=True)
