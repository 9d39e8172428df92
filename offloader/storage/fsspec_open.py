"""From a URL and options to a file system of fsspec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec

from offloader.errors import ConfigError
from offloader.storage.fsspec_errors import translated

_NUMBERS = (
    "block_size",
    "blocksize",
    "connection_timeout",
    "max_concurrency",
    "read_timeout",
    "timeout",
)
_WORDS = {"true": True, "false": False}


def open_file_system(url: str, options: Mapping[str, Any], setting: str) -> tuple[Any, str]:
    """The file system and the path in it. Raises ConfigError; `setting` is how whoever gave the URL calls it."""
    chosen = {name: _typed(name, value) for name, value in options.items()}
    with translated(f"opening {url}"):
        try:
            fs, path = fsspec.url_to_fs(url, use_listings_cache=False, **chosen)
        except (ImportError, ValueError, TypeError) as e:
            raise ConfigError(f"{setting}: {url}: {' '.join(str(e).split())}") from e
    return fs, path


def _typed(name: str, value: Any) -> Any:
    """Options come as text."""
    if not isinstance(value, str):
        return value
    if name not in _NUMBERS:
        return _WORDS.get(value.lower(), value)
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"storage.options.{name}: {value!r} is not a whole number") from None
