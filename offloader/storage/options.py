"""A store's own options: they come as text, and say so when they are not what they must be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from offloader.errors import ConfigError
from offloader.storage.settings import StoreSettings


def known_options(settings: StoreSettings, known: Sequence[str]) -> dict[str, str]:
    """The options of a store. Raises ConfigError where one is none of those that it knows."""
    options = dict(settings.options)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(f"options.{unknown[0]}: not an option of {settings.scheme}://; there are {', '.join(known)}")
    return options


def one_of(allowed: Collection[str], options: Mapping[str, str], name: str, default: str) -> str:
    """A word. Raises ConfigError where it is none of those that are allowed."""
    value = options.get(name, default)
    if value not in allowed:
        raise ConfigError(f"options.{name}: must be one of {', '.join(allowed)}")
    return value


def number(options: Mapping[str, str], name: str, default: float) -> float:
    """A number above 0. Raises ConfigError."""
    text = options.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"options.{name}: {text!r} is not a number above 0")
    return value
