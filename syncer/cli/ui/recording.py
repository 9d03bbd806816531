"""The daemon's part in the history of mounted volumes: hour by hour it notes what they hold."""

from __future__ import annotations

from typing import Final

import trio

_FIRST_S: Final = 60.0  # a machine that starts has other work
_EVERY_S: Final = 3600.0


async def record(folder: str) -> None:
    """Note it until cancelled.

    Args:
        folder: Where the histories are.
    """
    await trio.sleep(_FIRST_S)
    while True:
        await trio.to_thread.run_sync(_note, folder, abandon_on_cancel=True)
        await trio.sleep(_EVERY_S)


def _note(folder: str) -> None:
    from syncer.cli.ui.history import History  # noqa: PLC0415 - once an hour
    from syncer.cli.ui.volumes import note_all  # noqa: PLC0415 - likewise

    note_all(History(folder))
