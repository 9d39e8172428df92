"""The records of rescued ledgers, to and from bytes, and in the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, FormatVersionError, ObjectNotFoundError
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.layout import parse_slot
from offloader.metadata.log import NumberedLog, read_record
from offloader.metadata.message_codec import message_of, read_value
from offloader.metadata.rescued_keys import rescue_records_folder, rescued_folder, rescued_objects_folder
from offloader.metadata.rescues import NewestRescue, RescuedLedger, RescueForgotten, RescueRecord
from offloader.metadata.value_codec import damage_of
from offloader.model import Loss, Segment
from offloader.ports.object_store import ObjectStore


def encode_rescue(token: str, record: RescueRecord) -> bytes:
    """A record's bytes."""
    if isinstance(record, RescueForgotten):
        return wrap(token, pb.Body(rescue_forgotten=pb.RescueForgotten(at=record.at, by=record.by)))
    ensemble, write, ack = record.quorums
    message = pb.RescuedLedger(
        ledger=record.ledger,
        created=record.created,
        last_entry=record.last_entry,
        length=record.length,
        kind=record.kind,
        managed_ledger=record.managed_ledger,
        digest_type=record.digest_type,
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=ack,
        custom=[pb.CustomMetadata(key=key, value=value) for key, value in record.custom],
        segments=map(message_of, record.segments),
        losses=map(message_of, record.losses),
        sha256=record.sha256,
        at=record.at,
        by=record.by,
    )
    return wrap(token, pb.Body(rescued_ledger=message))


def decode_rescue(key: str, data: bytes) -> RescueRecord:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    opened = unwrap(key, data)
    if opened.kind == "rescue_forgotten":
        return RescueForgotten(opened.body.rescue_forgotten.at, opened.body.rescue_forgotten.by)
    if opened.kind != "rescued_ledger":
        raise DamagedRecordError(f"{key}: a {opened.kind} record does not belong here")
    m = opened.body.rescued_ledger
    with damage_of(key):
        return RescuedLedger(
            ledger=m.ledger,
            created=m.created,
            last_entry=m.last_entry,
            length=m.length,
            kind=m.kind,
            managed_ledger=m.managed_ledger,
            digest_type=m.digest_type,
            quorums=(m.ensemble_size, m.write_quorum, m.ack_quorum),
            custom=tuple((one.key, one.value) for one in m.custom),
            segments=tuple(read_value(Segment, one) for one in m.segments),
            losses=tuple(read_value(Loss, one) for one in m.losses),
            sha256=m.sha256,
            at=m.at,
            by=m.by,
        )


class Rescues:
    """The rescued ledgers of one cluster in one bucket. Calls raise what the store raises."""

    def __init__(self, store: ObjectStore, cluster: str) -> None:
        self.store = store
        self.cluster = cluster

    def last_slot(self, ledger: int) -> int:
        """The number of a ledger's newest record, whatever it says; -1: there is none."""
        return max(self._log(ledger).slots(), default=-1)

    def newest(self, ledger: int) -> NewestRescue:
        """What counts of a ledger now. Raises DamagedRecordError, FormatVersionError."""
        slot = self.last_slot(ledger)
        if slot < 0:
            return NewestRescue()
        key = self._log(ledger).key(slot)
        try:
            record = decode_rescue(key, read_record(self.store, key))
        except ObjectNotFoundError as error:
            raise DamagedRecordError(f"{key}: it was listed, and is gone; nobody ever removes it") from error
        if isinstance(record, RescuedLedger) and record.ledger != ledger:
            raise DamagedRecordError(f"{key}: it is the record of ledger {record.ledger}")
        return NewestRescue(slot, record)

    def rescued(self, ledger: int) -> RescuedLedger | None:
        """What was rescued of a ledger. Raises DamagedRecordError, FormatVersionError."""
        return self.newest(ledger).rescued

    def write(self, ledger: int, slot: int, record: RescueRecord, new_token: Callable[[], str]) -> bool:
        """Whether it is the record of this slot now; else somebody else's is. Raises OutcomeUnknownError."""
        return self._log(ledger).append(slot, encode_rescue(new_token(), record)) is None

    def ledgers(self) -> Iterator[int]:
        """All of which something is there, whatever it is."""
        folder = rescued_folder(self.cluster)
        found = (parse_slot(name.removeprefix(folder).rstrip("/")) for name in self.store.folders(folder))
        return (ledger for ledger in found if ledger is not None)

    def folder(self, ledger: int, slot: int) -> str:
        """Where the objects of a rescue lie, with the closing slash."""
        return rescued_objects_folder(self.cluster, ledger, slot)

    def _log(self, ledger: int) -> NumberedLog:
        return NumberedLog(self.store, rescue_records_folder(self.cluster, ledger))


def read_rescue(rescues: Rescues, ledger: int) -> NewestRescue | str:
    """What counts of a ledger, or why that cannot be told. Raises what the store raises."""
    try:
        return rescues.newest(ledger)
    except (DamagedRecordError, FormatVersionError) as error:
        return str(error).rstrip(".")
