"""A door for tests of whole applications: the environment may name a function that wraps what a process reaches.

`OFFLOADER_WRAP=module:function`; the function is called with ("driver" or "worker", source, store), one of the two None, and returns
the source and the store to use instead. Unset, as it is outside tests, nothing is wrapped.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from offloader.ports.entry_source import EntrySource
from offloader.ports.object_store import ObjectStore

VARIABLE = "OFFLOADER_WRAP"


def wrapped_source(source: EntrySource) -> EntrySource:
    """What a worker reads from."""
    wrapped: EntrySource = _wrap("worker", source, None)[0]
    return wrapped


def wrapped_store(role: str, store: ObjectStore) -> ObjectStore:
    """The store that a worker or the driver uses."""
    wrapped: ObjectStore = _wrap(role, None, store)[1]
    return wrapped


def _wrap(role: str, source: Any, store: Any) -> tuple[Any, Any]:
    name = os.environ.get(VARIABLE)
    if not name:
        return source, store
    module, _, function = name.partition(":")
    wrap = getattr(importlib.import_module(module), function)
    answer: tuple[Any, Any] = wrap(role, source, store)
    return answer
