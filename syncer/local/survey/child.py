"""The worker's process: `python -m syncer.local.survey.child ROOT CONNECTION`, two descriptors. See `survey_worker`."""

from __future__ import annotations

import marshal
import sys
from multiprocessing.connection import Connection

from syncer.core.ignore import IgnoreRules
from syncer.local.survey.digests import Digests, Surveyor


def main(root: int, connection: Connection) -> None:
    """Look at directories until there is nobody who asks."""
    try:
        raw, rules = marshal.loads(connection.recv_bytes())  # noqa: S302 - of the process that started us
        surveyor, known = Surveyor(root, IgnoreRules.load(rules)), Digests(raw)
        while True:
            batch = marshal.loads(connection.recv_bytes())  # noqa: S302
            connection.send_bytes(marshal.dumps([surveyor.judge(path, known) for path in batch]))
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), Connection(int(sys.argv[2])))
