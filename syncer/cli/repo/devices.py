"""`blocksync repo devices`: who has written to a repository; and forgetting who is lost."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from blockfs.cli.groups import Verbs
from blockfs.runtime.output import JsonValue, json_line, note, tell
from syncer.cli.repo.place import Place, Repository, place_options, with_repository
from syncer.remote.repository.maintenance.devices import Device, devices_of, forget


class _Verbs(Verbs):
    """`devices URL` is short for `devices list URL`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in the verb where there is none."""
        if args and args[0] != "--help" and ("://" in args[0] or args[0].startswith("--")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("devices", cls=_Verbs)
def command() -> None:
    """Show the devices of a repository, and forget one that is lost.

    `blocksync repo devices URL` is short for `blocksync repo devices list URL`.
    """


@command.command("list")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per device.")
def list_command(place: Place, as_json: bool) -> None:
    """List the devices that have written to the repository at URL, the last one first."""

    async def work(repository: Repository) -> list[Device]:
        return await devices_of(repository.objects)

    for device in with_repository(place, work):
        if as_json:
            json_line("device", _fields(place.url, device))
        else:
            followed = "" if device.has_followers else "  nobody else has built on its last commit"
            tell(f"{device.device.hex()}  {_time(device.written_ns)}  {device.name}{followed}")


@command.command("forget")
@click.argument("device")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def forget_command(device: str, place: Place, as_json: bool) -> None:
    """Forget DEVICE, an id or its beginning, in the repository at URL: what only it needed can be collected.

    Nothing that it has committed is lost. It does not lock the device out.
    """

    async def work(repository: Repository) -> Device:
        return await forget(repository.objects, device)

    gone = with_repository(place, work)
    if as_json:
        json_line("forgotten", _fields(place.url, gone))
        return
    tell(f"forgotten: {gone.device.hex()}  {gone.name}")
    note("A device that was stolen still has the repository's key; removing a passphrase does not change that.")
    note("To lock it out, make a new repository, link the other devices to it, and delete this one.")


def _fields(url: str, device: Device) -> dict[str, JsonValue]:
    return {
        "url": url,
        "device": device.device.hex(),
        "name": device.name,
        "tool": device.tool,
        "written": _time(device.written_ns),
        "has_followers": device.has_followers,
    }


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
