"""A managed ledger's offload contexts: which of its ledgers are offloaded, under which uuid, and which others there
are. Pure.

What is offloaded completely is read from the record in the metadata store, or from the admin REST as 4.0.7 answers it:
`internal-info` has the uuid (`offloadedContextUuid`), but its `isOffloaded` is true of a copy that failed as well; only
the `offloaded` of `internalStats` says that the copy is complete. The bucket is in the record alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo, OffloadContext
from offloader.archive.ledgers.found import FoundLedgers
from offloader.archive.snapshot import OffloadedLedger
from offloader.bookkeeper.managed_ledgers import decode_record
from offloader.errors import DamagedRecordError, ProtocolError
from offloader.model import LedgerList, LedgerSpan, Position, TopicName
from offloader.pulsar.managed_ledger import topic_info

_HALF = 2**64  # a uuid's halves are signed numbers


@dataclass(frozen=True, slots=True)
class LedgerContext:
    """A ledger of a topic's list. `last` is the last entry it was closed with (-1: empty), None while it is open.

    `uuid` is empty where it was never offloaded; until the copy is `complete` it names an attempt. `bucket` and
    `driver` are empty where they are not said, and `bookkeeper_deleted` is False.
    """

    ledger: int
    last: int | None
    size: int
    uuid: str = ""
    complete: bool = False
    bucket: str = ""
    driver: str = ""
    bookkeeper_deleted: bool = False


def contexts_of_record(data: bytes) -> tuple[LedgerContext, ...]:
    """From a managed ledger's record in the metadata store, raw or compressed. Raises DamagedRecordError."""
    ledgers = sorted(decode_record(data).ledgerInfo, key=lambda info: info.ledgerId)
    # The last ledger's record has no count before it is closed.
    return tuple(_of_record(info, may_be_open=info is ledgers[-1]) for info in ledgers)


def contexts_of_rest(stats: Mapping[str, Any], info: Mapping[str, Any]) -> tuple[LedgerContext, ...]:
    """From `internalStats`, asked first, and `internal-info`: complete copies keep uuids. Raises ProtocolError."""
    known = topic_info(info, stats)
    try:
        uuids = {int(one["ledgerId"]): str(one.get("offloadedContextUuid", "")) for one in info["ledgers"]}
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"the broker describes a managed ledger in a way that we do not know ({error!r})"
        ) from error
    return tuple(
        LedgerContext(
            ledger=span.ledger,
            last=span.last,
            size=known.sizes[span.ledger][1],
            uuid=uuids.get(span.ledger, ""),
            complete=span.ledger in known.offloaded,
        )
        for span in known.ledgers.spans
    )


def found_in(
    topic: TopicName,
    contexts: Iterable[LedgerContext],
    url_of: Callable[[str], str] = lambda _: "",
    created: int | None = None,
) -> FoundLedgers:
    """The ledgers with a complete copy. `url_of`: the URL of the store with a bucket's objects ("": none is named)."""
    contexts = tuple(contexts)
    offloaded = (
        OffloadedLedger(Position(0, c.ledger, 0), Position(0, c.ledger, c.last), c.uuid, c.size, url_of(c.bucket))
        for c in contexts
        if c.complete and c.uuid and c.last is not None and c.last >= 0
    )
    return FoundLedgers(
        topic, tuple(offloaded), LedgerList(tuple(LedgerSpan(c.ledger, c.last) for c in contexts)), created
    )


def _of_record(info: ManagedLedgerInfo.LedgerInfo, *, may_be_open: bool) -> LedgerContext:
    if info.ledgerId < 0 or info.entries < 0 or info.size < 0:
        raise DamagedRecordError(
            f"a managed ledger's record has ledger {info.ledgerId} with {info.entries} entries, {info.size} bytes"
        )
    is_open = may_be_open and info.entries == 0
    context = info.offloadContext
    return LedgerContext(
        ledger=info.ledgerId,
        last=None if is_open else info.entries - 1,
        size=info.size,
        uuid=_uuid(context),
        complete=context.complete,
        bucket=next((p.value for p in context.driverMetadata.properties if p.key == "bucket"), ""),
        driver=context.driverMetadata.name,
        bookkeeper_deleted=context.bookkeeperDeleted,
    )


def _uuid(context: OffloadContext) -> str:
    if not context.HasField("uidMsb") or not context.HasField("uidLsb"):
        return ""
    return str(UUID(int=context.uidMsb % _HALF * _HALF + context.uidLsb % _HALF))
