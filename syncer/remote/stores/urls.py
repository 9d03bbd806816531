"""URLs of object stores. Pure.

swift://CLOUD_OR_HOST/CONTAINER[/PREFIX]     s3://BUCKET[/PREFIX]
sftp://[USER@]HOST[:PORT]/PATH               file:///PATH
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote, urlsplit

import msgspec

FORMS: Final = {
    "swift": "swift://CLOUD_OR_HOST/CONTAINER[/PREFIX]",
    "s3": "s3://BUCKET[/PREFIX]",
    "sftp": "sftp://[USER@]HOST[:PORT]/PATH",
    "file": "file:///PATH",
}
_MAX_PREFIX_BYTES: Final = 400  # Swift and S3 take names of 1,024 bytes, and ours are at most 512
_MAX_CONTAINER_BYTES: Final = 256


class StoreUrl(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is.

    Attributes:
        scheme: swift, s3, sftp or file.
        host: A cloud, or HOST[:PORT]; the host of an sftp URL, IPv6 without brackets; "" for others.
        port: Of an sftp URL, if it says one.
        user: Of an sftp URL, if it says one.
        container: Container or bucket; "" for others.
        path: The prefix, without slashes at its ends; the directory of sftp and file, absolute.
    """

    scheme: str
    host: str = ""
    port: int | None = None
    user: str | None = None
    container: str = ""
    path: str = ""

    @property
    def prefix(self) -> str:
        """What the names of a container's objects begin with."""
        return f"{self.path}/" if self.path else ""

    def __str__(self) -> str:
        if self.scheme in {"sftp", "file"}:
            host = f"[{self.host}]" if ":" in self.host else self.host
            user = "" if self.user is None else f"{quote(self.user, safe='')}@"
            return f"{self.scheme}://{user}{host}{'' if self.port is None else f':{self.port}'}{quote(self.path)}"
        parts = [self.host, quote(self.container, safe=""), quote(self.path)]
        return f"{self.scheme}://" + "/".join(part for part in parts if part)


def is_store_url(text: str) -> bool:
    """Whether it begins as one."""
    return text.partition("://")[0] in FORMS and "://" in text


def parse_store_url(text: str) -> StoreUrl:
    """Read one.

    Raises:
        ValueError: It is none; says what is expected. Passwords are refused: they never belong into a URL.
    """
    scheme, mark, rest = text.partition("://")
    if not mark or scheme not in FORMS:
        raise ValueError(f"{text!r} is no URL of an object store: expected one of {', '.join(FORMS.values())}")
    host, _, path = rest.partition("/")
    form = f"expected {FORMS[scheme]}"
    if "?prefix=" in rest:
        raise ValueError(
            f"{text!r}: a root is all of a repository, no folder of it (?prefix=): make a repository for the folder "
            f"in a place of its own: {form}"
        )
    if "?" in rest or "#" in rest:
        raise ValueError(f"{scheme}://{host}…: no query or fragment, please: {form}; a ? in a name is written %3F")
    if ":" in host.rpartition("@")[0] or ("@" in host and scheme != "sftp"):
        raise ValueError(f"{scheme}://…{host.rpartition('@')[2]}: no credentials in a URL, please: {form}")
    try:
        decoded = unquote(path, errors="strict")
        problem = _path_problem(decoded, scheme)
        if problem is not None:
            raise ValueError(problem)  # noqa: TRY301 -- told as the others are
        return _READERS[scheme](text, host, decoded)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}: {form}") from None


def _path_problem(path: str, scheme: str) -> str | None:
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in path):
        return "control characters"
    segments = path.strip("/").split("/")
    if any(segment in {".", ".."} for segment in segments) or ("" in segments and segments != [""]):
        return "empty segments, . or .. in the path"
    if scheme in {"swift", "s3"} and len(path.encode()) > _MAX_PREFIX_BYTES + _MAX_CONTAINER_BYTES:
        return "it is too long"
    return None


def _swift(_: str, host: str, path: str) -> StoreUrl:
    container, _, prefix = path.strip("/").partition("/")
    if not host or not container:
        raise ValueError("it names no container")
    return StoreUrl(scheme="swift", host=unquote(host), container=_container(container), path=_prefix(prefix))


def _s3(_: str, host: str, path: str) -> StoreUrl:
    if not host:
        raise ValueError("it names no bucket")
    return StoreUrl(scheme="s3", container=_container(unquote(host)), path=_prefix(path.strip("/")))


def _sftp(text: str, _: str, path: str) -> StoreUrl:
    parts = urlsplit(text)
    if not parts.hostname or parts.hostname.startswith("-") or not path.strip("/"):
        raise ValueError("it names no host, or no directory")
    user = None if parts.username is None else unquote(parts.username)
    return StoreUrl(scheme="sftp", host=parts.hostname, port=parts.port, user=user, path=f"/{path.strip('/')}")


def _file(_: str, host: str, path: str) -> StoreUrl:
    if host not in {"", "localhost"}:
        raise ValueError(f"{host!r} is another host; mount its share, or begin with three slashes")
    if not path.strip("/"):
        raise ValueError("it names no directory")
    return StoreUrl(scheme="file", path=f"/{path.strip('/')}")


_READERS: Final = {"swift": _swift, "s3": _s3, "sftp": _sftp, "file": _file}


def _container(name: str) -> str:
    if len(name.encode()) > _MAX_CONTAINER_BYTES or "/" in name:
        raise ValueError(f"{name[:50]!r} is no name of a container")
    return name


def _prefix(path: str) -> str:
    if len(path.encode()) > _MAX_PREFIX_BYTES:
        raise ValueError(f"the prefix is longer than {_MAX_PREFIX_BYTES} bytes")
    return path
