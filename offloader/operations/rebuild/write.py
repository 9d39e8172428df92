"""Writes a proposal as a new generation; one compare-and-set ends the old one.

The order: the records' own objects; slots 1 and on of the new generation, which nobody reads yet; the old generation's
next slot, which ends it and puts the new one in force; the new one's slot 0, by which readers find it once the old one
is removed. Where another process has written the old generation's next slot meanwhile, the rebuild must be repeated. An
interruption before that slot changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from offloader.archive.findings import FindingKind
from offloader.errors import FatalError, IntegrityError
from offloader.metadata.catalog_codec import decode_catalog, encode_catalog, opening, plain, standing
from offloader.metadata.generations import last_slot
from offloader.metadata.journal_start import JournalStart
from offloader.metadata.layout import catalog_folder, claim_key, record_key
from offloader.metadata.log import READERS, NumberedLog, read_record
from offloader.metadata.state import CatalogHead, GenerationEnded, Said, TopicCatalog
from offloader.model import OpenSegment, Segment, TopicName
from offloader.operations.rebuild.gather import gather
from offloader.operations.rebuild.propose import Proposal, Sound, propose
from offloader.operations.rebuild.remains import Given, Remains
from offloader.operations.verify.segment_check import check_objects
from offloader.ports.object_store import ObjectStore


def proposed(store: ObjectStore, topic: TopicName, given: Given) -> Proposal:
    """What the catalog should be, as everything is now. Writes nothing."""
    remains = gather(store, topic)
    return propose(remains, given, sound_in(store, remains))


def rebuild(store: ObjectStore, topic: TopicName, given: Given, new_token: Callable[[], str]) -> Proposal:
    """Propose and write. Where there is something to write, end whoever runs on the owner's journal. Raises FatalError,
    IntegrityError."""
    proposal = proposed(store, topic, given)
    check_agreement(proposal)
    if proposal.in_force and not proposal.remains.incomplete:
        return proposal
    _end_running(store, proposal, new_token)
    proposal = proposed(store, topic, given)
    check_agreement(proposal)
    _write_beside(store, proposal)
    if not proposal.in_force:
        _write_generation(store, proposal, given.at)
    return proposal


def sound_in(store: ObjectStore, remains: Remains) -> Sound:
    """Checks the data and index objects of a segment, byte for byte."""

    def problem(segment: Segment) -> str:
        key = remains.read_from[segment.uuid]
        whole = decode_catalog(key, read_record(store, key))
        if not isinstance(whole, Segment):
            raise IntegrityError(f"{key} has changed while it was looked at")
        found = check_objects(store, remains.topic, whole, quick=False)
        first = next((each for each in found if each.kind is not FindingKind.WRONG_METADATA), None)
        return "" if first is None else f"{first.key}: {first.message}"

    return problem


def check_agreement(proposal: Proposal) -> None:
    """Whether the journals can go on after the proposed catalog. Raises FatalError, IntegrityError."""
    remains = proposal.remains
    if len(remains.open) > 1:
        names = " and ".join(application for application, _ in remains.open)
        raise FatalError(
            f"{remains.topic}: {names} both have a segment of it open; `offloader takeover` ends one of them"
        )
    for application, segment in remains.open:
        _check_open(remains.topic, proposal.catalog(), application, segment)


def _check_open(topic: TopicName, catalog: TopicCatalog, application: str, segment: OpenSegment) -> None:
    owner = catalog.claim.application if catalog.claim is not None else ""
    if owner != application:
        raise FatalError(
            f"{topic}: the journal of {application} has segment {segment.uuid} open, the catalog would be "
            f"{owner or 'nobody'}'s: give --application {application}, or `offloader takeover` first"
        )
    done = any(s.uuid == segment.uuid for s in catalog.segments)
    if not done and catalog.end is not None and segment.start <= catalog.end:
        raise IntegrityError(
            f"{topic}: the open segment starts at {segment.start}, the catalog would end at {catalog.end}"
        )


def _end_running(store: ObjectStore, proposal: Proposal, new_token: Callable[[], str]) -> None:
    """Begin a new epoch of the owner's journal: a process that still runs on it stops for good."""
    claim = proposal.catalog().claim
    owners = {application for application, _ in proposal.remains.open}
    for application in sorted(owners | {claim.application if claim is not None else ""} - {""}):
        start = JournalStart(store, application)
        loaded = start.load()
        if loaded.epoch > 0 and not loaded.taken_over_by:
            start.new_epoch(new_token)


def _write_beside(store: ObjectStore, proposal: Proposal) -> None:
    """Every record has its object; one that cannot be read is written anew. The list of claims has the topic."""
    remains = proposal.remains
    unread = {note.key for note in remains.notes}

    def write(record: Said) -> None:
        uuid = remains.uuid(record)
        key, source = record_key(remains.topic, uuid), remains.read_from.get(uuid)
        if source == key:
            return
        data = encode_catalog(uuid, record) if source is None else plain(read_record(store, source))
        if store.put(key, data, if_absent=key not in unread) is None:
            raise _written_meanwhile(key, remains.topic)

    with ThreadPoolExecutor(READERS, "record-writer") as pool:
        list(pool.map(write, proposal.records))
    claim = proposal.catalog().claim
    if claim is not None and claim.application:
        store.put(claim_key(claim.application, remains.topic), str(remains.topic).encode(), if_absent=True)


def _write_generation(store: ObjectStore, proposal: Proposal, at: int) -> None:
    remains, topic, former = proposal.remains, proposal.remains.topic, proposal.remains.generation
    # Never a number that a writer may still know, or that manifests are left of. Where nothing tells of a former
    # rebuild, the time does: what was lost once more is not made again under the same number.
    generation = max(max((*remains.slots, *remains.with_manifests, former or 0)) + 1, at)
    log = NumberedLog(store, catalog_folder(topic, generation))

    def write(standing_record: tuple[CatalogHead, Said]) -> None:
        before, record = standing_record
        _append(log, before.next_slot, standing(before, plain(read_record(store, remains.key(record)))), topic)

    with ThreadPoolExecutor(READERS, "record-writer") as pool:
        list(pool.map(write, _standing(CatalogHead(topic, generation=generation, next_slot=1), proposal.records)))
    if former is not None:
        # What is before it may be damaged: it does not count any more.
        before = CatalogHead(topic, generation=former, next_slot=last_slot(remains.slots, former) + 1)
        ended = standing(before, encode_catalog(f"ended for {generation}", GenerationEnded(generation)))
        _append(NumberedLog(store, catalog_folder(topic, former)), before.next_slot, ended, topic)
    _append(log, 0, opening(topic, generation), topic)


def _standing(head: CatalogHead, records: Iterable[Said]) -> Iterator[tuple[CatalogHead, Said]]:
    """Each record, and what the records before it add up to."""
    for record in records:
        yield head, record
        head = head.after(record)


def _append(log: NumberedLog, slot: int, data: bytes, topic: TopicName) -> None:
    if log.append(slot, data) is not None:
        raise _written_meanwhile(log.key(slot), topic)


def _written_meanwhile(key: str, topic: TopicName) -> IntegrityError:
    return IntegrityError(f"{key} has been written meanwhile: stop whatever works on {topic} and try again")
