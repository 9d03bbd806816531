"""Run, save JSON lines, print the tables of docs/reference/benchmarks.md.

python -m benchmarks [NAME…]
python -m benchmarks lan [--quick] [PART…]
python -m benchmarks targets [native] [--quick] [PART…]
python -m benchmarks s3ql [--quick | --table] [PART…]
python -m benchmarks space [--more]
python -m benchmarks transfers [--more | --table] [PART…]
python -m benchmarks repository [--repetitions N] [PART…]
python -m benchmarks page [--quick]
python -m benchmarks demo
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Final

from benchmarks import (
    bench_chunks,
    bench_codecs,
    bench_filesystem,
    bench_image,
    bench_maps,
    bench_scale,
    bench_share_index,
    bench_snapshots,
    bench_start,
    bench_sync,
    bench_tools,
    bench_transfers,
    bench_watch,
    harness,
)

PROJECT: Final = Path(__file__).parents[1]

BENCHMARKS = {
    "chunks": bench_chunks.run,
    "codecs": bench_codecs.run,
    "filesystem": bench_filesystem.run,
    "snapshots": bench_snapshots.run,
    "start": bench_start.run,
    "sync": bench_sync.run,
    "sync-connections": bench_transfers.connections,
    "sync-small-files": bench_transfers.small,
    "sync-blocks": bench_transfers.blocks,
    "sync-tools": bench_tools.run,
    "sync-image": bench_image.run,
    "rescan": bench_scale.rescan,
    "rename": bench_scale.rename,
    "share-index": bench_share_index.run,
    "maps": bench_maps.run,
    "watch": bench_watch.run,
}

WITH_TABLES: Final = {
    "demo": "benchmarks.bench_demo",
    "repository": "benchmarks.repository.command",
    "s3ql": "benchmarks.bench_s3ql",
    "space": "benchmarks.bench_space",
    "targets": "benchmarks.targets.command",
    "transfers": "benchmarks.bench_loopback",
}
"""Modules that are loaded when they are asked for: they want root, or programs that others do without."""


def main() -> None:
    """Run the named ones, or all but those that have tables of their own: `lan`, `targets`, `space` and the like."""
    # An installed command has its byte code: so have those that are measured, also where the environment forbids it.
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(PROJECT / ".pycache"))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if sys.argv[1:2] == ["lan"]:
        from benchmarks.lan import command  # noqa: PLC0415 - it loads what talks with peers

        try:
            command.main(sys.argv[2:])
        except KeyboardInterrupt:
            sys.exit("interrupted; its networks are gone, and parts that were complete are saved")
        return
    if sys.argv[1:2] and sys.argv[1] in WITH_TABLES:
        importlib.import_module(WITH_TABLES[sys.argv[1]]).main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["page"]:
        from benchmarks import bench_page  # noqa: PLC0415 - it wants a browser

        if sys.argv[2:] == ["--quick"]:
            print(harness.markdown(bench_page.run(is_quick=True)))
        else:
            report("page", bench_page.run())
        return
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        sys.exit(f"unknown benchmark {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}")
    for name in names:
        report(name, BENCHMARKS[name]())


def report(name: str, results: list[harness.Result]) -> None:
    """Keep the rows, and print their table."""
    print(f"## {name} ({harness.save(name, results)}) {harness.busy()}\n\n{harness.markdown(results)}")


main()
