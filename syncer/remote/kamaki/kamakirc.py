"""kamaki's configuration file: which clouds there are. Text in, values out; who reads the file is the command line.

```
[global]
default_cloud = home
ca_certs = /etc/ssl/certs/ca-certificates.crt
[cloud "home"]
url = https://accounts.example.org/identity/v2.0
token = …
pithos_container = pithos
```
"""

from __future__ import annotations

import re
from configparser import Error as ConfigParserError
from configparser import RawConfigParser
from typing import Final

import msgspec

from syncer.errors import UsageError

GLOBAL: Final = "global"
DEFAULT_CONTAINER: Final = "pithos"  # kamaki's

_SECTION: Final = re.compile(r'cloud\s+"([~@#$.:\-\w]+)"')
_ON: Final = {
    "on": True,
    "true": True,
    "yes": True,
    "1": True,
    "off": False,
    "false": False,
    "no": False,
    "0": False,
    "": False,
}


class Cloud(msgspec.Struct, frozen=True, kw_only=True):
    """One cloud, as far as storage goes. Its text form shows no token.

    Attributes:
        name: As in the section.
        source: File and section, for messages.
        url: Astakos's authentication URL, None if only the storage is named.
        token: For Astakos, and for the storage if `pithos_token` is not there.
        pithos_url: The storage's URL; with `pithos_token`, Astakos is not asked for it.
        pithos_token: For the storage.
        pithos_uuid: The account, if it is not the token's owner.
        container: For commands that name none.
        ca_certs: File of authorities to trust instead of the system's.
        ignore_ssl: Trust every certificate.
    """

    name: str
    source: str
    url: str | None
    token: str | None
    pithos_url: str | None
    pithos_token: str | None
    pithos_uuid: str | None
    container: str
    ca_certs: str | None
    ignore_ssl: bool

    def __repr__(self) -> str:
        return f"Cloud({self.source})"


class Clouds:
    """A configuration file that was read.

    Attributes:
        source: Its path.
    """

    def __init__(self, source: str, parser: RawConfigParser) -> None:
        self.source: Final = source
        self._parser = parser
        found = ((section, _SECTION.fullmatch(section)) for section in parser.sections())
        self._sections = {match[1]: section for section, match in found if match}

    @property
    def names(self) -> list[str]:
        """All clouds."""
        return list(self._sections)

    def find(self, name: str | None) -> Cloud:
        """A cloud by name; None: the default one.

        Raises:
            UsageError: There is no such cloud, or a value makes no sense.
        """
        if name is None:
            name = self._get(GLOBAL, "default_cloud") or (self.names[0] if len(self.names) == 1 else None)
        if name is None:
            raise UsageError(
                f"{self.source}, section [{GLOBAL}]: default_cloud is missing; name a cloud, of {self._known}"
            )
        section = self._sections.get(name)
        if section is None:
            raise UsageError(f'{self.source} has no section [cloud "{name}"]; it knows {self._known}')
        token, pithos_token = self._get(section, "token"), self._get(section, "pithos_token")
        if token is None and pithos_token is None:
            raise UsageError(f"{self.source}, section [{section}]: token is missing")
        return Cloud(
            name=name,
            source=f"{self.source}, section [{section}]",
            url=self._url(section, "url"),
            token=token,
            pithos_url=self._url(section, "pithos_url"),
            pithos_token=pithos_token,
            pithos_uuid=self._get(section, "pithos_uuid"),
            container=self._get(section, "pithos_container") or DEFAULT_CONTAINER,
            ca_certs=self._get(section, "ca_certs") or self._get(GLOBAL, "ca_certs"),
            ignore_ssl=self._switch(section, "ignore_ssl") or self._switch(GLOBAL, "ignore_ssl"),
        )

    @property
    def _known(self) -> str:
        return ", ".join(map(repr, self.names)) or "none"

    def _get(self, section: str, key: str) -> str | None:
        """A value; an empty one is as good as none."""
        return self._parser.get(section, key, fallback="").strip() or None

    def _url(self, section: str, key: str) -> str | None:
        value = self._get(section, key)
        if value is not None and not value.startswith(("http://", "https://")):
            raise UsageError(f"{self.source}, section [{section}]: {key}: expected http(s)://…, got {value[:100]!r}")
        return None if value is None else value.rstrip("/")

    def _switch(self, section: str, key: str) -> bool:
        value = (self._get(section, key) or "").lower()
        if value not in _ON:
            raise UsageError(f"{self.source}, section [{section}]: {key}: expected on or off, got {value[:40]!r}")
        return _ON[value]


def parse_clouds(text: str, source: str) -> Clouds:
    """Read the file's text.

    Args:
        text: All of it.
        source: Its path, for messages.

    Raises:
        UsageError: Not such a file.
    """
    parser = RawConfigParser(strict=False)  # as kamaki reads it: of equal keys the last counts
    try:
        parser.read_string(text, source)
    except ConfigParserError as error:
        # Its message may quote the line, which may hold the token.
        raise UsageError(f"{source} is not a kamaki configuration: {type(error).__name__}{_line(error)}") from None
    return Clouds(source, parser)


def _line(error: ConfigParserError) -> str:
    number = getattr(error, "lineno", None) or next((line for line, _ in getattr(error, "errors", [])), None)
    return "" if number is None else f", line {number}"
