"""python -m tests.devices PLACE SECONDS SEED: six devices on one share; figures as JSON, exit 1 if anything is lost.

PLACE: `served`, a container of our server; `swift`, a repository on a real Swift.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.devices.share import LostError, Share


def main() -> int:
    """Run once."""
    os.environ["BLOCKSYNC_PEERS"] = "off"  # nothing is sent on this machine's network
    place, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # waited for, never delivered
    home = Path(tempfile.mkdtemp(prefix="blocksync-six-"))
    share = Share(home, place, seed)
    try:
        share.prepare()
        share.trouble(seconds)
        share.settle()
    except LostError as error:
        print(f"seed {seed}: {error}\nwhat the devices and the store have is in {home}")
        return 1
    finally:
        share.close()
    shutil.rmtree(home)
    print(json.dumps(share.counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
