"""What tests of whole applications put between a process and what it reaches."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.ports.entry_source import EntrySource
from offloader.ports.object_store import ObjectStore


@dataclass(frozen=True)
class Wrapper:
    """Puts nothing in between; tests derive from it. It is pickled in Spark's plans: it may hold no secret."""

    def source(self, source: EntrySource) -> EntrySource:
        """What slices are read from."""
        return source

    def store(self, store: ObjectStore) -> ObjectStore:
        """The store that the process uses."""
        return store


UNWRAPPED = Wrapper()
