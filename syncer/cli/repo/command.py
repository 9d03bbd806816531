"""`blocksync repo`: the group, and its verbs in the order of help."""

from __future__ import annotations

import click

from blockfs.cli.groups import Verbs
from syncer.cli.repo import check, devices, gc, init, key, repack, settings, stats


@click.group("repo", cls=Verbs)
def command() -> None:
    """Make a repository on an object store, check it, and look after it.

    A repository is a share that its devices keep on a store which knows nothing of it: encrypted, compressed, each
    content once. URL is where it is: swift://CLOUD_OR_HOST/CONTAINER[/PREFIX], s3://BUCKET[/PREFIX],
    sftp://[USER@]HOST[:PORT]/PATH or file:///PATH.

    The passphrase comes from --password-file, else from the file that $BLOCKSYNC_PASSWORD_FILE names, else from
    $BLOCKSYNC_PASSWORD; else the key counts that a folder keeps which is linked to URL (not for `init`, nor where
    passphrases are changed or removed); else the terminal is asked. A recovery key does as well as a passphrase.
    """


for _verb in (
    init.command,
    check.command,
    gc.command,
    repack.command,
    settings.command,
    stats.command,
    key.command,
    devices.command,
):
    command.add_command(_verb)
