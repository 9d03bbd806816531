"""`blocksync mount`: serve a volume as a filesystem."""

from __future__ import annotations

import logging
import os

import click
from click.core import ParameterSource
from msgspec.structs import replace

from blockfs.cli import mountoptions
from blockfs.cli.parameters import PATH, json_option
from blockfs.engine.volume import lock_holder
from blockfs.errors import NotFoundError
from blockfs.mount.choice import Choice
from blockfs.mount.daemon import run_daemon, run_foreground
from blockfs.mount.process import MountOptions
from blockfs.runtime.notify import ServiceManager
from blockfs.runtime.output import JsonValue, json_line, shown
from blockfs.runtime.volumes import is_volume


@click.command("mount")
@click.argument("volume", type=PATH)
@click.argument("mountpoint", type=PATH)
@click.option("--foreground", is_flag=True, help="Stay attached, log to stderr; Ctrl-C unmounts.")
@click.option("--read-only", is_flag=True, help="Change nothing: writing fails with EROFS, nothing is sealed.")
@click.option("--allow-other", is_flag=True, help="Let other users in, as far as permissions allow.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least that is logged.",
)
@click.option(
    "--frontend",
    type=click.Choice([each.value for each in Choice]),
    help="What talks to the kernel: our own code, or libfuse by pyfuse3. auto: ours, unless the kernel is too old.",
    envvar="BLOCKSYNC_FRONTEND",
)
@click.option(
    "--native/--no-native",
    "native",
    default=None,
    help="Let the kernel read and write files of the host itself, where it can (XFS, btrfs): on XFS the default.",
    envvar="BLOCKSYNC_NATIVE",
)
@click.option("-o", "options", default="", metavar="OPTIONS", help="Options as in fstab: ro,noexec,nodev,allow_other …")
@json_option
@click.pass_context
def command(
    context: click.Context,
    *,
    volume: bytes,
    mountpoint: bytes,
    foreground: bool,
    read_only: bool,
    allow_other: bool,
    log_level: str,
    frontend: str | None,
    native: bool | None,
    options: str,
    as_json: bool,
) -> None:
    """Mount VOLUME at MOUNTPOINT, an empty directory; returns when it is ready.

    The mount process logs to VOLUME/mount.log. SIGTERM unmounts it cleanly. Started by a service manager
    (NOTIFY_SOCKET), it tells when it is ready and when it stops.
    """
    asked = mountoptions.parse(options)
    asked = replace(
        asked,
        read_only=asked.read_only or read_only,
        allow_other=asked.allow_other or allow_other,
        debug=asked.debug or bool((context.obj or {}).get("debug")),
        frontend=asked.frontend if frontend is None else Choice(frontend),
        native=asked.native if _is_silent(context, "native", asked.native) else native,
    )
    chosen = mount_options(volume, mountpoint, asked, log_level=logging.getLevelNamesMapping()[log_level.upper()])
    # Taken out of the environment: fusermount3 and others that we start have nothing to tell.
    manager = ServiceManager(os.environ.pop("NOTIFY_SOCKET", None))

    def ready() -> None:
        if as_json:
            json_line("mount", _fields(chosen))

    if foreground:
        run_foreground(chosen, manager, ready)
    else:
        run_daemon(chosen, manager)
        ready()


def _is_silent(context: click.Context, name: str, asked: object) -> bool:
    """Whether an option of `-o` counts: there is no other, or it is only in the environment."""
    source = context.get_parameter_source(name)
    return context.params[name] is None or (asked is not None and source is ParameterSource.ENVIRONMENT)


def _fields(chosen: MountOptions) -> dict[str, JsonValue]:
    return {
        "volume": shown(chosen.volume),
        "mountpoint": shown(chosen.mountpoint),
        "pid": lock_holder(chosen.volume),
        "read_only": chosen.read_only,
    }


def mount_options(
    volume: bytes, mountpoint: bytes, asked: mountoptions.Options, *, log_level: int = logging.INFO
) -> MountOptions:
    """What to mount where and how, for the mount process.

    Raises:
        NotFoundError: There is no volume.
    """
    if not is_volume(volume):
        raise NotFoundError(f"{shown(volume)} is no blocksync volume; `blocksync init` makes one")
    return MountOptions(
        volume=os.path.realpath(volume),
        mountpoint=os.path.realpath(mountpoint),
        read_only=asked.read_only,
        allow_other=asked.allow_other,
        kernel_flags=asked.kernel,
        log_level=logging.DEBUG if asked.debug else log_level,
        frontend=asked.frontend,
        native=asked.native,
    )
