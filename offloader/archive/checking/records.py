"""A topic's catalog, record by record: what is readable is checked even where something is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from offloader.archive.checking.findings import Finding, Kind
from offloader.archive.continuity import breaks, name
from offloader.archive.rebuilding.found import is_made
from offloader.archive.runs import runs
from offloader.errors import DamagedRecordError, FormatVersionError, IntegrityError
from offloader.format.crc import combine
from offloader.metadata.catalog_codec import decode_catalog
from offloader.metadata.envelope import unseal
from offloader.metadata.layout import catalog_folder, data_key
from offloader.metadata.log import NumberedLog
from offloader.metadata.state import CatalogFold, Claim, Record, TopicCatalog
from offloader.model import Loss, Position, Segment, TopicName
from offloader.storage.base import ObjectStore


@dataclass(frozen=True, slots=True)
class ReadCatalog:
    """What can be read of a catalog, every claim in it, and what is wrong with its records. `tokens`: each record's key and token,
    which no other record has (a segment's is its uuid)."""

    catalog: TopicCatalog
    claims: tuple[Claim, ...]
    findings: tuple[Finding, ...]
    tokens: tuple[tuple[str, str], ...] = ()
    complete: bool = True


def read_catalog(store: ObjectStore, topic: TopicName) -> ReadCatalog:
    """Read what can be read. Raises only what the store raises."""
    log = NumberedLog(store, catalog_folder(topic))
    fold, claims, findings, tokens = CatalogFold(TopicCatalog(topic)), [], [], []
    for slot, data in log.load():
        key = log.key(slot)
        if slot != fold.next_slot:
            missing = log.key(fold.next_slot)
            findings.append(Finding(Kind.DAMAGED_RECORD, missing, f"it is missing, though {key} is there", topic))
            fold.next_slot = slot
        claim = fold.claim
        try:
            record = decode_catalog(key, data)
            tokens.append((key, unseal(key, data).token))
            fold.claim = _claim_for(record, claim, damaged=bool(findings))
            fold.add(record)
        except (IntegrityError, FormatVersionError) as error:
            findings.append(Finding(Kind.DAMAGED_RECORD, key, _without(key, str(error)), topic))
            fold.claim, fold.next_slot = claim, slot + 1
            continue
        if isinstance(record, Claim):
            claims.append(record)
    catalog = fold.catalog()
    begins = [] if findings else list(_check_begins(catalog))
    return ReadCatalog(
        catalog, tuple(claims), (*findings, *begins, *check_catalog(catalog)), tuple(tokens), complete=not findings
    )


def _claim_for(record: Record, claim: Claim | None, *, damaged: bool) -> Claim | None:
    """Behind damage: a record of an incarnation whose claim was lost is checked as if that were there."""
    if not damaged or not isinstance(record, Segment | Loss):
        return claim
    if claim is not None and claim.incarnation == record.start.incarnation:
        return claim
    return Claim("", record.start.incarnation, "", record.start, 0)


def _check_begins(catalog: TopicCatalog) -> Iterator[Finding]:
    """Whether what there is of each incarnation lies where it was claimed from."""
    first = {segment.start.incarnation: segment for segment in reversed(catalog.segments)}
    for incarnation, begin in catalog.begins.items():
        segment = first.get(incarnation)
        if segment is not None and segment.start < begin:
            message = f"{name(segment)} starts at {segment.start}, and the topic was claimed from {begin} on"
            yield Finding(Kind.DAMAGED_RECORD, catalog_folder(catalog.topic), message, catalog.topic, position=segment.start)


def check_catalog(catalog: TopicCatalog) -> Iterator[Finding]:
    """Whether the records agree with each other and with themselves."""
    topic = catalog.topic
    for broken in breaks(catalog):
        yield Finding(Kind(broken.kind), catalog_folder(topic), broken.message, topic, position=broken.after.start)
    for before, segment in pairwise((None, *catalog.segments)):
        if segment is not None:
            if not _stands_for_predecessor(catalog.losses, segment):
                yield from _check_predecessor(topic, before, segment)
            for problem in check_segment(segment):
                key = data_key(topic, segment.uuid)
                yield Finding(Kind.DAMAGED_RECORD, key, problem, topic, position=segment.start)


def _stands_for_predecessor(losses: Iterable[Loss], segment: Segment) -> bool:
    """Whether the predecessor's record is lost, and a rebuild has recorded a loss in its place."""
    end = segment.predecessor_end
    return end is not None and any(is_made(loss) and loss.start <= end <= loss.end for loss in losses)


def _check_predecessor(topic: TopicName, before: Segment | None, segment: Segment) -> Iterator[Finding]:
    said: tuple[str, Position | None] = (segment.predecessor_uuid, segment.predecessor_end)
    if said != (("", None) if before is None else (before.uuid, before.end)):
        there = "none" if before is None else f"{name(before)} up to {before.end}"
        message = f"its predecessor is {there}, it says {segment.predecessor_uuid or 'none'} up to {segment.predecessor_end}"
        yield Finding(Kind.WRONG_PREDECESSOR, data_key(topic, segment.uuid), message, topic, position=segment.start)


def check_segment(segment: Segment) -> Iterator[str]:
    """Everything that a segment's record says twice must agree."""
    if not segment.ledgers:
        yield "it names no ledger"
        return
    first, last = segment.ledgers[0], segment.ledgers[-1]
    if (first.ledger, first.first) != (segment.start.ledger, segment.start.entry):
        yield f"it starts at {segment.start}, its ledgers at {first.ledger}:{first.first}"
    if (last.ledger, last.last) != (segment.end.ledger, segment.end.entry):
        yield f"it ends at {segment.end}, its ledgers at {last.ledger}:{last.last}"
    yield from _check_ledgers(segment)
    yield from _check_counts(segment)
    yield from _check_parts(segment)


def _check_ledgers(segment: Segment) -> Iterator[str]:
    for before, after in pairwise(segment.ledgers):
        if before.ledger >= after.ledger:
            yield f"ledger {after.ledger} stands after ledger {before.ledger}"
        if before.closed_with != before.last:
            closed = "nothing" if before.closed_with is None else before.closed_with
            yield f"it goes on after {before.ledger}:{before.last}, and {closed} is recorded as that ledger's end"
        if after.first != 0:
            yield f"it goes on in ledger {after.ledger} with entry {after.first}"
    for held in segment.ledgers:
        if held.closed_with is not None and held.closed_with < held.last:
            yield f"it holds {held.ledger}:{held.last} of a ledger that was closed with {held.closed_with}"


def _check_counts(segment: Segment) -> Iterator[str]:
    try:
        found = runs(segment)
    except DamagedRecordError as error:
        yield str(error)
        return
    for held in segment.ledgers:
        count = sum(run.count for run in found if run.ledger == held.ledger and run.gap is None)
        if count != held.count:
            yield f"ledger {held.ledger} has {held.count} entries in {held.first}..{held.last}, where {count} are in no gap"


def _check_parts(segment: Segment) -> Iterator[str]:
    offset = 0
    for number, part in enumerate(segment.parts, 1):
        if (part.number, part.offset) != (number, offset):
            yield f"part {part.number} at {part.offset} stands where part {number} at {offset} belongs"
        offset += part.size
    if offset != segment.size:
        yield f"its parts have {offset} bytes, it has {segment.size}"
    if combine((part.crc32c, part.size) for part in segment.parts) != segment.crc32c:
        yield "its parts' CRC32C do not combine to its own"
    for held in segment.ledgers:
        of_parts = [r for part in segment.parts for r in part.ledgers if r.ledger == held.ledger]
        sums = (sum(r.count for r in of_parts), sum(r.size for r in of_parts))
        if sums != (held.count, held.size):
            yield f"ledger {held.ledger} has {held.count} entries of {held.size} bytes, in its parts {sums[0]} of {sums[1]}"


def _without(key: str, message: str) -> str:
    return message.removeprefix(key).lstrip(": ")
