"""A key's setting: a file that is read again, or the key itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from offloader.errors import ConfigError
from offloader.gateway.access.keys import TokenKey, inline_bytes

log = logging.getLogger(__name__)


class KeySetting:
    """As brokers take it: `file:///path`, a path, `data:;base64,…` or base64. `path`: the setting's, for errors."""

    def __init__(self, path: str, text: str, make: Callable[[bytes], TokenKey]) -> None:
        self._path = path
        self._make = make
        self._file = _file_of(text)
        self._inline = text
        self._seen = b""
        self._told = ""

    def read(self) -> TokenKey:
        """Raises ConfigError."""
        self._seen = self._bytes()
        return self._key(self._seen)

    def changed(self) -> TokenKey | None:
        """The key if its file has another one since; None: it has not, or what it has now is no key, which is told
        once."""
        try:
            data = self._bytes()
            if data == self._seen:
                return None
            found, self._seen, self._told = self._key(data), data, ""
        except ConfigError as error:
            if str(error) != self._told:
                log.warning("%s; the key from before is used", error, extra={"see": "gateway-file"})
            self._told = str(error)
            return None
        return found

    def _bytes(self) -> bytes:
        try:
            return inline_bytes(self._inline) if self._file is None else self._file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{self._path}: {self._file} cannot be read ({error.strerror})") from error
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error}") from error

    def _key(self, data: bytes) -> TokenKey:
        try:
            return self._make(data)
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error}") from error


def _file_of(text: str) -> Path | None:
    """None: the key stands in the setting itself."""
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    if text.startswith("data:"):
        return None
    try:
        return Path(text) if Path(text).is_file() else None
    except OSError:  # too long for a path
        return None
