"""Have the daemon leave roots alone, or go on with them: what `pause` and `resume` share."""

from __future__ import annotations

import os

from blockfs.runtime.output import json_line, note, shown
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.many_roots import for_each
from syncer.watch import control


def set_paused(root: bytes | None, *, paused: bool, as_json: bool) -> int:
    """Book it for a root, or for all, and tell the daemon; returns the exit code."""
    registry = Registry(os.environ)
    done = 0

    def work(linked: LinkedRoot) -> None:
        nonlocal done
        linked.pause(paused=paused)
        done += 1
        if as_json:
            verb = "pause" if paused else "resume"
            json_line(verb, {"root": shown(linked.path), "uuid": linked.record.uuid, "paused": paused})
        else:
            note(f"{'paused' if paused else 'resumed'} {shown(linked.path)}")

    code = for_each(registry.chosen(root), work, alone=root is not None, as_json=as_json)
    told = control.reload(registry.socket)
    if as_json:
        json_line("summary", {"roots": done, "daemon": told})
    return code
