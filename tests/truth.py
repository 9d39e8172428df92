"""What a topic really held: the ground truth that `check_invariants` compares the archive with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from offloader.model import GapKind, TopicName
from offloader.ports.admin import Admin
from offloader.ports.entry_source import EntrySource
from tests.fakes.cluster import MemoryCluster

READ_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TrueEntry:
    """An entry that was written. `sha256` None: of unknown bytes. `gaps`: the kinds of gap that may stand for it."""

    sha256: str | None
    gaps: frozenset[GapKind] = frozenset()


@dataclass(frozen=True, slots=True)
class Truth:
    """A topic's entries of all incarnations by (ledger, entry), and where its pin stands (None: there is no pin).

    `complete`: there were no other entries. `readable`: stock brokers are to read what the pin lets go of.
    """

    entries: Mapping[tuple[int, int], TrueEntry]
    mark_delete: tuple[int, int] | None = None
    complete: bool = True
    readable: bool = False


def sha256(data: bytes) -> str:
    """How entries are compared."""
    return hashlib.sha256(data).hexdigest()


def truth_of_cluster(cluster: MemoryCluster, topic: TopicName) -> Truth:
    """The in-memory cluster knows everything that was ever written."""
    entries = {
        (e.ledger, e.entry): TrueEntry(
            sha256(e.data), frozenset({e.hidden, GapKind.FILTERED}) if e.hidden else frozenset()
        )
        for e in cluster.entries(topic)
    }
    if not cluster.exists(topic):
        return Truth(entries)
    return Truth(entries, cluster.mark_delete(topic))


class TruthCollector:
    """Learns a real topic's entries while they are retained: call `read` before they are trimmed, then `truth`."""

    def __init__(self, source: EntrySource, admin: Admin, topic: TopicName) -> None:
        self._source = source
        self._admin = admin
        self._topic = topic
        self._entries: dict[tuple[int, int], TrueEntry] = {}

    def read(self, timeout: float = 10.0) -> int:
        """Read what was written since the last call, up to the last confirmed entry; returns how many entries it knows.

        The ledger's count tells of entries that are not delivered.
        """
        info = self._admin.topic_info(self._topic)
        last_read = max(self._entries, default=(-1, -1))
        counted = [(ledger, count) for ledger, (count, _) in sorted(info.sizes.items()) if ledger >= last_read[0]]
        wanted = [(ledger, entry) for ledger, count in counted for entry in range(count) if (ledger, entry) > last_read]
        if wanted:
            delivered = self._read_delivered(wanted[0], wanted[-1], timeout)
            hidden = TrueEntry(None, frozenset(GapKind))
            self._entries.update((place, delivered.get(place, hidden)) for place in wanted)
        return len(self._entries)

    def truth(self, mark_delete: tuple[int, int] | None) -> Truth:
        """What was read so far."""
        return Truth(dict(self._entries), mark_delete)

    def _read_delivered(
        self, first: tuple[int, int], last: tuple[int, int], timeout: float
    ) -> dict[tuple[int, int], TrueEntry]:
        """Up to `last`, or until nothing has come for `timeout` seconds: what follows is hidden."""
        reader = self._source.open(self._topic, *first, max_bytes=READ_BYTES)
        found: dict[tuple[int, int], TrueEntry] = {}
        try:
            while entries := reader.read(timeout):
                found.update(((e.ledger, e.entry), TrueEntry(sha256(e.data))) for e in entries)
                if (entries[-1].ledger, entries[-1].entry) >= last:
                    break
        finally:
            reader.close()
        return found
