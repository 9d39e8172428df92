"""Single entries of what was rescued of a ledger before: they may be the only copies that are left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.reader import entries, read_blocks
from offloader.lifecycle.rescue.read_back import sound
from offloader.metadata.rescues import RescuedLedger
from offloader.model import Segment
from offloader.ports.entry_source import RawEntry
from offloader.ports.object_store import ObjectStore


@dataclass
class FormerCopy:
    """`folder`: where its objects lie. One of these at a time is in memory."""

    store: ObjectStore
    folder: str
    record: RescuedLedger
    _uuid: str = ""
    _entries: Mapping[int, RawEntry] = field(default_factory=dict)

    def entry(self, number: int) -> RawEntry | None:
        """None: it has not got it, or its object is damaged or gone. Raises what the store raises."""
        segment = next((one for one in self.record.segments if one.start.entry <= number <= one.end.entry), None)
        if segment is None:
            return None
        if segment.uuid != self._uuid:
            self._uuid, self._entries = segment.uuid, self._read(segment)
        return self._entries.get(number)

    def _read(self, segment: Segment) -> Mapping[int, RawEntry]:
        try:
            data = sound(self.store, self.folder, segment)
            found = (each for block in read_blocks(data) for each in entries(block))
            return {each.entry: RawEntry(self.record.ledger, each.entry, bytes(each.data)) for each in found}
        except (ObjectNotFoundError, DamagedObjectError):
            return {}
