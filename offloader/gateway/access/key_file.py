"""A key's setting, as brokers have it: `file:///path`, a path, `data:;base64,…` or base64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from offloader.gateway.access.keys import TokenKey, inline_bytes
from offloader.gateway.access.reread import Reread


def key_of(setting: str, text: str, make: Callable[[bytes], TokenKey]) -> Reread[TokenKey]:
    """`setting`: its path, for errors. Raises ConfigError."""
    path = _file_of(text)
    if path is None:
        return Reread(setting, (), lambda _: make(inline_bytes(text)))
    return Reread(setting, (path,), lambda found: make(found[0]))


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
