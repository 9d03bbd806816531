"""python -m tests.devices SECONDS SEED: six devices on one container; figures as JSON, exit 1 if anything is lost."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.devices.share import LostError, Share


def main() -> int:
    """Run once."""
    os.environ["BLOCKSYNC_PEERS"] = "off"  # nothing is sent on this machine's network
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # waited for, never delivered
    with tempfile.TemporaryDirectory(prefix="blocksync-six-") as home:
        share = Share(Path(home), seed)
        try:
            share.prepare()
            share.trouble(seconds)
            share.settle()
        except LostError as error:
            print(f"seed {seed}: {error}")
            return 1
        finally:
            share.close()
        print(json.dumps(share.counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
