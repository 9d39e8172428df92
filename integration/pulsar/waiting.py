"""Waiting for a condition of a real server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from integration.processes import HANGS
from offloader.errors import RetryableError
from offloader.ports.entry_source import EntryReader, RawEntry

T = TypeVar("T")


def until(check: Callable[[], T], seconds: float = HANGS) -> T:
    """What `check` gives once it is true. While a topic moves, it may raise what may be tried again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := check():
                return found
        except RetryableError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def read(reader: EntryReader, count: int, seconds: float = HANGS) -> list[RawEntry]:
    """That many entries, in the order they came."""
    found: list[RawEntry] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} entries came"
        found += reader.read(1)
    return found


def positions(entries: list[RawEntry]) -> list[tuple[int, int]]:
    return [(e.ledger, e.entry) for e in entries]
