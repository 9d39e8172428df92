"""A runtime whose connections are fakes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from offloader.config import Config
from offloader.runtime.connections import Dependencies, Runtime

NOTHING: Any = SimpleNamespace(close=lambda: None)


def runtime_of(text: str, **opened: Any) -> Runtime:
    """`text`: the configuration. `opened`: how connections are opened; by default there is no store and no Pulsar."""
    found = {"store": lambda _: NOTHING, "admin": lambda _: NOTHING, **opened}
    return Runtime(Config.parse(text, {}), Dependencies(**found))
