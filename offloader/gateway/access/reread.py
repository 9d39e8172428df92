"""What is read from files, and read again when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from offloader.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Reread(Generic[T]):
    """`setting`: its path, for errors. `files`: those whose bytes `make` makes a value of. Raises ConfigError."""

    def __init__(self, setting: str, files: Sequence[Path], make: Callable[[list[bytes]], T]) -> None:
        self._setting = setting
        self._files = files
        self._make = make
        self._told = ""
        self._bytes = self._read()
        self._value = self._made(self._bytes)

    def now(self) -> T:
        """As the files had it when they were last looked at."""
        return self._value

    def look(self) -> bool:
        """Whether the files have another value now. What is none is told once, and the one from before stays."""
        try:
            found = self._read()
            if found == self._bytes:
                return False
            self._value = self._made(found)
        except ConfigError as error:
            if str(error) != self._told:
                log.warning("%s; what it was before is used", error, extra={"see": "gateway-file"})
            self._told = str(error)
            return False
        self._bytes, self._told = found, ""
        return True

    def _read(self) -> list[bytes]:
        try:
            return [path.read_bytes() for path in self._files]
        except OSError as error:
            raise ConfigError(f"{self._setting}: {error.filename} cannot be read ({error.strerror})") from error

    def _made(self, found: list[bytes]) -> T:
        try:
            return self._make(found)
        except ConfigError as error:
            raise ConfigError(f"{self._setting}: {error}") from error
