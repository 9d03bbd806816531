"""The verbs of `blocksync`: their groups, summaries and modules; found by name, imported when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

import click

from blockfs.cli.groups import Verbs
from blockfs.runtime import interrupts
from syncer.cli import interpreter

if TYPE_CHECKING:  # see `MODULES`
    from blockfs.blocks.sources import Deliver

SECTIONS: Final = {
    "Volumes": {
        "init": "Make an empty volume in a new or empty directory.",
        "mount": "Mount a volume at an empty directory.",
        "umount": "Unmount; everything is durable when it returns.",
        "clone": "Copy a file by sharing its blocks: instant at any size.",
        "snapshot": "Keep a folder or file as it is at one instant.",
        "flush": "Make everything that was written durable, as blocks.",
        "stats": "Show what a mount holds, and what it takes on the disk.",
        "gc": "Remove blocks that no file refers to, now.",
        "fsck": "Check a volume's names, files and blocks; repair them.",
        "scrub": "Read and check every stored block.",
    },
    "Server": {
        "serve": "Serve an object store in a directory over HTTP.",
        "usage": "Show what a server keeps, and for whom.",
        "token": "Say who may talk to a server, also while it runs.",
    },
    "Repositories": {
        "repo": "Make, check and look after a repository on an object store.",
    },
    "Synchronisation": {
        "link": "Link a folder or a mount to a container on a server.",
        "unlink": "Forget what a root is linked to; no file is touched.",
        "reconcile": "Bring a root and its container to the same state, once.",
        "watch": "Keep roots and their containers in the same state.",
        "pause": "Make `watch` leave a root alone, until `resume`.",
        "resume": "Make `watch` go on with a root after `pause`.",
        "peers": "Get blocks from devices on the network, or don't.",
        "status": "Show how roots stand: last cycle, pending, conflicts.",
        "ignore": "Choose what of a root is not synced.",
        "ui": "Open the page of `watch` in a browser.",
    },
    "Looking closer, and putting right": {
        "trash": "Look into, restore from, or empty a root's trash.",
        "conflicts": "List conflict copies.",
        "resolve": "Settle a conflict copy.",
        "plan": "Show what the next reconcile would do.",
        "explain": "Show what a path is here, there, and what is to happen.",
        "verify": "Compare a root and its container with the agreed state.",
        "doctor": "Check this host, a root, its state and its server.",
    },
}
"""Heading → verb → what help says of it, on one line. Not with the verb, so that help imports none of them."""

SUMMARIES: Final = {verb: summary for verbs in SECTIONS.values() for verb, summary in verbs.items()}

_PACKAGES: Final = {"Volumes": "blockfs.cli", "Server": "syncer.cli.verbs.server"}
MODULES: Final = {
    verb: f"{_PACKAGES.get(heading, 'syncer.cli.verbs')}.{verb}"
    for heading, verbs in SECTIONS.items()
    for verb in verbs
} | {"doctor": "syncer.cli.doctor.command", "repo": "syncer.cli.repo.command", "ui": "syncer.cli.ui.command"}
"""Verb → module. Loaded when used: a script that calls `blocksync stats` a thousand times imports no server."""


class LazyVerbs(Verbs):
    """A group whose commands are loaded by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All verbs, in the order of help."""
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import one verb."""
        module = MODULES.get(cmd_name)
        if module is None:
            return None
        with interpreter.not_now():
            command = importlib.import_module(module).command
        interrupts.interrupt_verbs()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """The verbs under their headings; no verb is imported for it."""
        width = max(map(len, SUMMARIES))
        for heading, verbs in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(width), summary) for verb, summary in verbs.items()])


def _tell_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from blockfs.build import build_text  # noqa: PLC0415 - for who asks

        click.echo(f"blocksync {build_text()}")
        context.exit()


@click.group(cls=LazyVerbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version and exit.",
)
@click.option("--debug", is_flag=True, help="Show a traceback on failure.")
@click.pass_context
def blocksync(context: click.Context, debug: bool) -> None:
    """Folders of large, similar files: small on disk, cheap to move."""
    context.obj = {"debug": debug, "block_sources": {b"peers": _peers}}


def _peers(blocks_path: str) -> Deliver:
    """What `scrub --from peers` asks: see blockfs.cli.scrub."""
    from syncer.cli.lan.peerblocks import find  # noqa: PLC0415 - for who asks

    return find(blocks_path)
