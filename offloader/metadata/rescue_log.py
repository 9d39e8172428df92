"""The records of rescued ledgers, to and from bytes, and in the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, FormatVersionError
from offloader.metadata.layout import parse_slot
from offloader.metadata.message_codec import add_messages
from offloader.metadata.record_codec import RecordCodec, codec_of
from offloader.metadata.records import Records
from offloader.metadata.rescued_keys import rescue_records_folder, rescued_folder, rescued_objects_folder
from offloader.metadata.rescues import NewestRescue, RescuedLedger, RescueForgotten, RescueRecord
from offloader.ports.object_store import ObjectStore

add_messages(
    {RescuedLedger: pb.RescuedLedger, RescueForgotten: pb.RescueForgotten},
    {tuple[str, bytes]: (lambda pair: pb.CustomMetadata(key=pair[0], value=pair[1]), lambda m: (m.key, m.value))},
)
RESCUE: RecordCodec[RescueRecord] = codec_of({"rescued_ledger": RescuedLedger, "rescue_forgotten": RescueForgotten})


class Rescues:
    """The rescued ledgers of one cluster in one bucket. Calls raise what the store raises."""

    def __init__(self, store: ObjectStore, cluster: str) -> None:
        self.store = store
        self.cluster = cluster

    def last_slot(self, ledger: int) -> int:
        """The number of a ledger's newest record, whatever it says; -1: there is none."""
        return max(self._records(ledger).slots(), default=-1)

    def newest(self, ledger: int) -> NewestRescue:
        """What counts of a ledger now. Raises DamagedRecordError, FormatVersionError."""
        newest = self._records(ledger).newest()
        if newest is None:
            return NewestRescue()
        record = newest.record
        if isinstance(record, RescuedLedger) and record.ledger != ledger:
            key = self._records(ledger).key(newest.slot)
            raise DamagedRecordError(f"{key}: it is the record of ledger {record.ledger}")
        return NewestRescue(newest.slot, record)

    def rescued(self, ledger: int) -> RescuedLedger | None:
        """What was rescued of a ledger. Raises DamagedRecordError, FormatVersionError."""
        return self.newest(ledger).rescued

    def write(self, ledger: int, slot: int, record: RescueRecord, new_token: Callable[[], str]) -> bool:
        """Whether it is the record of this slot now; else somebody else's is. Raises OutcomeUnknownError."""
        return self._records(ledger).write(slot, new_token(), record)

    def ledgers(self) -> Iterator[int]:
        """All of which something is there, whatever it is."""
        folder = rescued_folder(self.cluster)
        found = (parse_slot(name.removeprefix(folder).rstrip("/")) for name in self.store.folders(folder))
        return (ledger for ledger in found if ledger is not None)

    def folder(self, ledger: int, slot: int) -> str:
        """Where the objects of a rescue lie, with the closing slash."""
        return rescued_objects_folder(self.cluster, ledger, slot)

    def _records(self, ledger: int) -> Records[RescueRecord]:
        return Records(self.store, rescue_records_folder(self.cluster, ledger), RESCUE)


def read_rescue(rescues: Rescues, ledger: int) -> NewestRescue | str:
    """What counts of a ledger, or why that cannot be told. Raises what the store raises."""
    try:
        return rescues.newest(ledger)
    except (DamagedRecordError, FormatVersionError) as error:
        return str(error).rstrip(".")
