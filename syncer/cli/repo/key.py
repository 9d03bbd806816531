"""`blocksync repo key`: passphrases, recovery keys and key files that open a repository."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

import click

from blockfs.cli.groups import Verbs
from blockfs.runtime.atomic import sync_directory
from blockfs.runtime.output import JsonValue, json_line, note, tell
from syncer.cli.passphrase import repository_secret
from syncer.cli.repo.place import Place, Repository, place_options, with_repository
from syncer.errors import UsageError
from syncer.remote.repository.format.recovery import SECRET_BYTES, recovery_key
from syncer.remote.repository.format.slots import Secret, Slot
from syncer.remote.repository.maintenance import keys


@click.group("key", cls=Verbs)
def command() -> None:
    """Show, add, change and remove what opens a repository: passphrases, recovery keys, key files."""


@command.command("list")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per key.")
def list_command(place: Place, as_json: bool) -> None:
    """List the keys of the repository at URL, the oldest first; the one that was just used is marked."""

    async def work(repository: Repository) -> tuple[list[Slot], Slot | None]:
        return await keys.keys_of(repository.objects.store, repository.kept.repository), repository.slot

    found, used = with_repository(place, work)
    for slot in found:
        is_used = used is not None and slot.name == used.name
        if as_json:
            json_line("key", {**_fields(place.url, slot), "used": is_used})
        else:
            mark = "*" if is_used else " "
            tell(f"{mark} {keys.id_of(slot.name)}  {_time(slot.made_s)}  {_kind(slot)}  {slot.label}")


@command.command("add")
@place_options
@click.option("--new-password-file", metavar="FILE", type=click.Path(), help="The new passphrase, one line.")
@click.option("--recovery-key", "recovery", is_flag=True, help="Make a recovery key, and print it once.")
@click.option("--key-file", metavar="FILE", type=click.Path(), help="Make a key, and write it into FILE, a new file.")
@click.option("--label", metavar="TEXT", default="", help="What people call it; default: nothing. The store reads it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def add_command(
    *,
    place: Place,
    new_password_file: str | None,
    recovery: bool,
    key_file: str | None,
    label: str,
    as_json: bool,
) -> None:
    """Add a key to the repository at URL: a passphrase, a recovery key, or a file that opens it.

    A key file is given later as --password-file.
    """
    if sum((new_password_file is not None, recovery, key_file is not None)) > 1:
        raise UsageError("--new-password-file, --recovery-key and --key-file exclude each other: expected one of them")
    made = recovery or key_file is not None
    kind = Secret.RECOVERY_KEY if made else Secret.PASSPHRASE

    async def work(repository: Repository) -> tuple[Slot, str]:
        secret = recovery_key(os.urandom(SECRET_BYTES)) if made else _new_passphrase(new_password_file)
        if key_file is not None:
            _write(key_file, secret)
        try:
            return await keys.add(repository.objects.store, repository.kept, secret, kind, label), secret
        except UsageError:  # before anything was put: of a reply that was lost the slot may be there
            if key_file is not None:
                os.unlink(key_file)
            raise

    slot, secret = with_repository(place, work)
    if as_json:
        json_line("key", {**_fields(place.url, slot), "recovery_key": secret if recovery else None})
        return
    tell(f"added: {keys.id_of(slot.name)}  {_kind(slot)}  {slot.label}")
    if recovery:
        tell(f"recovery key: {secret}")
        note("It is shown only now.")


@command.command("change")
@place_options
@click.option("--new-password-file", metavar="FILE", type=click.Path(), help="The new passphrase, one line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def change_command(place: Place, new_password_file: str | None, as_json: bool) -> None:
    """Put a new passphrase in place of the key that opens the repository at URL now. Other keys stay.

    Who has a copy of the old key and its passphrase can open the repository with it for ever.
    """

    async def work(repository: Repository) -> tuple[Slot, Slot]:
        store, old = repository.objects.store, repository.slot
        assert old is not None
        secret = _new_passphrase(new_password_file)
        new = await keys.add(store, repository.kept, secret, Secret.PASSPHRASE, old.label)
        await keys.replace(store, old, new)
        return old, new

    old, new = with_repository(place, work, by_secret=True)
    if as_json:
        json_line("key", {**_fields(place.url, new), "replaces": keys.id_of(old.name)})
    else:
        tell(f"changed: {keys.id_of(new.name)} opens it now, and {keys.id_of(old.name)} is removed")


@command.command("remove")
@click.argument("key")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def remove_command(key: str, place: Place, as_json: bool) -> None:
    """Remove KEY, an id or its beginning, from the repository at URL. The one that you open it with stays.

    Who has a copy of it and its passphrase can open the repository with it for ever.
    """

    async def work(repository: Repository) -> str:
        assert repository.slot is not None
        return await keys.remove(repository.objects.store, key, repository.slot)

    gone = with_repository(place, work, by_secret=True)
    if as_json:
        json_line("removed", {"url": place.url, "key": gone})
    else:
        tell(f"removed: {gone}")


def _new_passphrase(file: str | None) -> str:
    if file is None and not sys.stdin.isatty():
        raise UsageError("no new passphrase, and no terminal to ask on: give --new-password-file FILE")
    return repository_secret(file, {}, new=True)


def _write(path: str, secret: str) -> None:
    """A key file; the only copy, so durable before its slot is."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists: expected a file that is not there yet") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{secret}\n")
        file.flush()
        os.fsync(file.fileno())
    sync_directory(os.path.dirname(os.path.abspath(path)))


def _kind(slot: Slot) -> str:
    return slot.secret.name.lower().replace("_", " ")


def _fields(url: str, slot: Slot) -> dict[str, JsonValue]:
    return {
        "url": url,
        "key": keys.id_of(slot.name),
        "secret": _kind(slot),
        "label": slot.label,
        "made": _time(slot.made_s),
    }


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, 253_402_300_799), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
