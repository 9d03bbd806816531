"""Where credentials for Swift come from: clouds.yaml, or variables OS_* and ST_*, as OpenStack's own clients have it.

A token (OS_AUTH_TOKEN) counts where no password is given: what is kept with a link may have an old one besides.

Nothing is taken from a URL, and nothing goes to a host that the credentials do not name themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from syncer.errors import UsageError
from syncer.remote.http.address import HttpAddress, parse_address
from syncer.remote.stores.swift.signin import MAX_TOKEN_BYTES, Keystone, SignIn, TempAuth
from syncer.remote.stores.swift.tokens import GivenToken

_MAX_FILE_BYTES: Final = 1 << 20
_V1: Final = frozenset({"v1password", "v1.0", "v1"})
_INTERFACES: Final = {"publicURL": "public", "internalURL": "internal", "adminURL": "admin"}
_YES: Final = frozenset({"1", "true", "yes", "on"})
_ENVIRONMENT: Final = "the environment"
_SECRETS: Final = ("ST_KEY", "OS_PASSWORD", "OS_APPLICATION_CREDENTIAL_SECRET")
_DEFAULT_DOMAIN: Final = "default"  # the id of the one that each Keystone is born with; what `openstack` takes, too

_VARIABLES: Final = {
    "auth_url": ("OS_AUTH_URL",),
    "username": ("OS_USERNAME",),
    "user_id": ("OS_USER_ID",),
    "password": ("OS_PASSWORD",),
    "project_name": ("OS_PROJECT_NAME", "OS_TENANT_NAME"),
    "project_id": ("OS_PROJECT_ID", "OS_TENANT_ID"),
    "user_domain_name": ("OS_USER_DOMAIN_NAME",),
    "user_domain_id": ("OS_USER_DOMAIN_ID",),
    "project_domain_name": ("OS_PROJECT_DOMAIN_NAME",),
    "project_domain_id": ("OS_PROJECT_DOMAIN_ID",),
    "default_domain": ("OS_DEFAULT_DOMAIN",),
    "application_credential_id": ("OS_APPLICATION_CREDENTIAL_ID",),
    "application_credential_name": ("OS_APPLICATION_CREDENTIAL_NAME",),
    "application_credential_secret": ("OS_APPLICATION_CREDENTIAL_SECRET",),
}


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """How to get at an account.

    Attributes:
        sign_in: Who asks, and where.
        ca_file: PEM file of authorities to trust instead of the system's; None: the system's.
        ignore_certificates: Trust every certificate.
    """

    sign_in: SignIn
    ca_file: str | None = None
    ignore_certificates: bool = False


class _Cloud(msgspec.Struct):
    """What clouds.yaml says of one cloud, as far as it matters here."""

    auth: dict[str, Any] = {}
    auth_type: str = "password"
    region_name: str | None = None
    interface: str | None = None
    cacert: str | None = None
    verify: bool = True
    object_store_endpoint_override: str | None = None
    identity_api_version: Any = None
    profile: Any = None


class _Clouds(msgspec.Struct):
    clouds: dict[str, dict[str, Any]] = {}


def find_credentials(place: str, environ: Mapping[str, str]) -> Credentials:
    """Credentials for what stands where a URL has its host.

    Args:
        place: A cloud of clouds.yaml, or `HOST[:PORT]`, which OS_AUTH_URL or ST_AUTH must name.
        environ: The environment.

    Raises:
        UsageError: There are none, or something is missing in them: says what and where.
    """
    path, clouds = _read_clouds(environ)
    if place in clouds:
        return _of_cloud(place, path, clouds[place])
    given = _of_token(place, environ)
    if given is not None:
        return given
    named = []
    for variable, make in (("ST_AUTH", _of_v1), ("OS_AUTH_URL", _of_v3)):
        if environ.get(variable):
            address = _address(environ[variable], variable)
            if place.lower() in _places_of(address):
                return make(address, environ)
            named.append(f"{variable} names {address.host}")
    known = f"{path} has {', '.join(sorted(clouds))}" if clouds else "there is no clouds.yaml"
    names = "; ".join(named) or "neither OS_AUTH_URL nor ST_AUTH is set"
    if environ.get("OS_AUTH_TOKEN"):
        names += "; OS_AUTH_TOKEN counts with OS_STORAGE_URL, if that or one of these names the host"
    raise UsageError(
        f"no credentials for {place}: expected a cloud of clouds.yaml ({known}), or the host of OS_AUTH_URL or "
        f"ST_AUTH ({names}); see docs/guide/swift.md"
    )


def find_clouds(place: str, environ: Mapping[str, str]) -> str | None:
    """The clouds.yaml that has a cloud; None: there is none, or it has not.

    Raises:
        UsageError: It can't be understood.
    """
    path, clouds = _read_clouds(environ)
    return path if place in clouds else None


def _read_clouds(environ: Mapping[str, str]) -> tuple[str, dict[str, dict[str, Any]]]:
    """The first clouds.yaml that there is, with the secure.yaml beside it.

    Only the one beside it: else a clouds.yaml in a folder where somebody works, but which is somebody else's, could
    send the user's own passwords elsewhere.
    """
    for path in _places(environ):
        text = _text(path)
        if text is not None:
            clouds = _decoded(path, text)
            secure = path.with_name("secure" + path.suffix)
            more = _text(secure)
            return str(path), clouds if more is None else _merged(clouds, _decoded(secure, more))
    return "", {}


def _places(environ: Mapping[str, str]) -> list[Path]:
    """Where openstacksdk looks, too, in its order."""
    if environ.get("OS_CLIENT_CONFIG_FILE"):
        return [Path(environ["OS_CLIENT_CONFIG_FILE"])]
    home = environ.get("HOME") or "~"
    settings = Path(environ.get("XDG_CONFIG_HOME") or Path(home).expanduser() / ".config")
    folders = [Path(), settings / "openstack", Path("/etc/openstack")]
    return [folder / name for folder in folders for name in ("clouds.yaml", "clouds.yml")]


def _text(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    if len(text) > _MAX_FILE_BYTES:
        raise UsageError(f"{path} is longer than {_MAX_FILE_BYTES} bytes: is it a clouds.yaml?")
    return text


def _decoded(path: Path, text: bytes) -> dict[str, dict[str, Any]]:
    try:
        return msgspec.yaml.decode(text, type=_Clouds).clouds
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:200]  # never the line itself: it may be the one with the password
        raise UsageError(f"{path} is no clouds.yaml: {reason}") from None


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        before = merged.get(key)
        merged[key] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _of_cloud(name: str, path: str, given: dict[str, Any]) -> Credentials:
    source = f"{path}, cloud {name}"
    try:
        cloud = msgspec.convert(given, _Cloud)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {error}") from None
    if cloud.profile is not None:
        raise UsageError(f"{source}: `profile` is not known here; write its auth_url into `auth`")
    fields = {key: str(value) for key, value in cloud.auth.items() if value is not None}
    if "auth_url" not in fields:
        raise UsageError(f"{source}: `auth` has no auth_url")
    address = _address(fields["auth_url"], source)
    override = cloud.object_store_endpoint_override
    storage = None if override is None else _address(override, source)
    sign_in: SignIn
    if cloud.auth_type in _V1:
        user, key = _wanted(fields, source, "username", "password")
        sign_in = TempAuth(address=address, user=user, key=key, storage=storage)
    else:
        sign_in = _keystone(address, fields, source, (cloud.region_name, cloud.interface), storage)
    return Credentials(sign_in=sign_in, ca_file=cloud.cacert, ignore_certificates=not cloud.verify)


def _of_v1(address: HttpAddress, environ: Mapping[str, str]) -> Credentials:
    user, key = _wanted(environ, _ENVIRONMENT, "ST_USER", "ST_KEY")
    return _with_trust(TempAuth(address=address, user=user, key=key, storage=_storage(environ)), environ)


def _of_v3(address: HttpAddress, environ: Mapping[str, str]) -> Credentials:
    fields = {
        key: value
        for key, variables in _VARIABLES.items()
        if (value := next((environ[name] for name in variables if environ.get(name)), None)) is not None
    }
    where = (environ.get("OS_REGION_NAME") or None, environ.get("OS_INTERFACE") or environ.get("OS_ENDPOINT_TYPE"))
    return _with_trust(_keystone(address, fields, _ENVIRONMENT, where, _storage(environ)), environ)


def _of_token(place: str, environ: Mapping[str, str]) -> Credentials | None:
    """A token that was given, with the account's address; None: there is none for this place, or a password is, too."""
    token, storage = environ.get("OS_AUTH_TOKEN"), _storage(environ)
    if not token or storage is None or any(environ.get(name) for name in _SECRETS):
        return None
    addresses = [_address(environ[name], name) for name in ("OS_AUTH_URL", "ST_AUTH") if environ.get(name)]
    if not any(place.lower() in _places_of(address) for address in (storage, *addresses)):
        return None
    if len(token) > MAX_TOKEN_BYTES or not (token.isascii() and token.isprintable()):
        raise UsageError("OS_AUTH_TOKEN is no token: one line of ASCII is expected")
    return _with_trust(GivenToken(token, storage), environ)


def _places_of(address: HttpAddress) -> set[str]:
    """What may stand in a URL for a server."""
    return {address.host, f"{address.host}:{address.port}"}


def _with_trust(sign_in: SignIn, environ: Mapping[str, str]) -> Credentials:
    insecure = environ.get("OS_INSECURE", "").lower() in _YES
    return Credentials(sign_in=sign_in, ca_file=environ.get("OS_CACERT") or None, ignore_certificates=insecure)


def _storage(environ: Mapping[str, str]) -> HttpAddress | None:
    value = environ.get("OS_STORAGE_URL")
    return _address(value, "OS_STORAGE_URL") if value else None


def _keystone(
    address: HttpAddress,
    fields: Mapping[str, str],
    source: str,
    where: tuple[str | None, str | None],
    storage: HttpAddress | None,
) -> Keystone:
    if address.path.endswith("/v2.0"):
        raise UsageError(f"{source}: {address} is Keystone's version 2; expected version 3")
    region, interface = where
    identity, scope, who = _identity(fields, source)
    return Keystone(
        address=address,
        identity=identity,
        scope=scope,
        who=who,
        region=region,
        interface=_INTERFACES.get(interface or "", interface) or "public",
        storage=storage,
    )


def _identity(fields: Mapping[str, str], source: str) -> tuple[dict[str, object], dict[str, object] | None, str]:
    """The `identity` and the `scope` of a request, and who it is in words."""
    given = {key: fields[key] for key in ("application_credential_id", "application_credential_name") if key in fields}
    if given:
        (secret,) = _wanted(fields, source, "application_credential_secret")
        credential: dict[str, object] = {"secret": secret}
        if "application_credential_id" in fields:
            credential["id"] = fields["application_credential_id"]
        else:
            credential["name"] = fields["application_credential_name"]
            credential["user"] = _user(fields, source)
        who = f"the application credential {next(iter(given.values()))}"
        return {"methods": ["application_credential"], "application_credential": credential}, None, who
    (password,) = _wanted(fields, source, "password")
    user = _user(fields, source)
    scope: dict[str, object] | None = None
    if "project_id" in fields:
        scope = {"project": {"id": fields["project_id"]}}
    elif "project_name" in fields:
        scope = {"project": {"name": fields["project_name"], "domain": _domain(fields, "project")}}
    who = f"the user {fields.get('username') or fields.get('user_id')}"
    return {"methods": ["password"], "password": {"user": {**user, "password": password}}}, scope, who


def _user(fields: Mapping[str, str], source: str) -> dict[str, object]:
    if "user_id" in fields:
        return {"id": fields["user_id"]}
    (name,) = _wanted(fields, source, "username")
    return {"name": name, "domain": _domain(fields, "user")}


def _domain(fields: Mapping[str, str], of: str) -> dict[str, str]:
    if f"{of}_domain_id" in fields:
        return {"id": fields[f"{of}_domain_id"]}
    if f"{of}_domain_name" in fields:
        return {"name": fields[f"{of}_domain_name"]}
    return {"id": fields.get("default_domain", _DEFAULT_DOMAIN)}


def _wanted(fields: Mapping[str, str], source: str, *keys: str) -> tuple[str, ...]:
    missing = [key for key in keys if not fields.get(key)]
    if missing:
        names = _VARIABLES if source == _ENVIRONMENT else {}
        raise UsageError(f"{source}: {', '.join(names.get(key, (key,))[0] for key in missing)} is missing")
    return tuple(fields[key] for key in keys)


def _address(text: str, source: str) -> HttpAddress:
    try:
        return parse_address(text)
    except ValueError as error:
        raise UsageError(f"{source}: {text!r} is no address: {error}") from None
