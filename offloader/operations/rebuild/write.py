"""Writes a proposal as a new generation; one compare-and-set ends the old one.

The order: the records' own objects; slots 1 and on of the new generation, which nobody reads yet; the old generation's
next slot, which says that it is over. Whoever wrote to that slot meanwhile wins, and the rebuild must be repeated. From
there on the new generation is in force. Its slot 0 says so as well, for when the old one is removed. An interruption
before that changes nothing.
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
from offloader.metadata.state import CatalogHead, GenerationEnded, Said
from offloader.model import OpenSegment, Segment, TopicName
from offloader.operations.rebuild.chain import Sound
from offloader.operations.rebuild.gather import gather
from offloader.operations.rebuild.propose import Proposal, propose
from offloader.operations.rebuild.remains import Given, Remains
from offloader.operations.verify.segment_check import check_objects
from offloader.ports.object_store import ObjectStore


def proposed(store: ObjectStore, topic: TopicName, given: Given) -> Proposal:
    """What the catalog should be, as everything is now. Writes nothing."""
    evidence = gather(store, topic)
    return propose(evidence, given, sound_in(store, evidence))


def rebuild(store: ObjectStore, topic: TopicName, given: Given, new_token: Callable[[], str]) -> Proposal:
    """Propose and write, whoever ran on the owner's journal being ended in between; nobody is where there is nothing to
    write. Raises FatalError, IntegrityError."""
    proposal = proposed(store, topic, given)
    check_agreement(proposal)
    if proposal.in_force and not proposal.evidence.incomplete:
        return proposal
    _end_running(store, proposal, new_token)
    proposal = proposed(store, topic, given)
    check_agreement(proposal)
    _write_beside(store, proposal)
    if not proposal.in_force:
        _write_generation(store, proposal, given.at)
    return proposal


def sound_in(store: ObjectStore, evidence: Remains) -> Sound:
    """Looks at the data and index objects of a segment, byte for byte."""

    def problem(segment: Segment) -> str:
        key = evidence.sources[segment.uuid]
        whole = decode_catalog(key, read_record(store, key))
        if not isinstance(whole, Segment):
            raise IntegrityError(f"{key} has changed while it was looked at")
        found = (
            f
            for f in check_objects(store, evidence.topic, whole, quick=False)
            if f.kind is not FindingKind.WRONG_METADATA
        )
        first = next(found, None)
        return "" if first is None else f"{first.key}: {first.message}"

    return problem


def check_agreement(proposal: Proposal) -> None:
    """Whether the journals can go on after the proposed catalog. Raises FatalError, IntegrityError."""
    evidence = proposal.evidence
    if len(evidence.open) > 1:
        names = " and ".join(application for application, _ in evidence.open)
        raise FatalError(
            f"{evidence.topic}: {names} both have a segment of it open; `offloader takeover` ends one of them"
        )
    for application, segment in evidence.open:
        _check_open(proposal, application, segment)


def _check_open(proposal: Proposal, application: str, segment: OpenSegment) -> None:
    topic, catalog = proposal.evidence.topic, proposal.catalog()
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
    owners = {application for application, _ in proposal.evidence.open} | (
        {claim.application} if claim is not None else set()
    )
    for application in sorted(owners - {""}):
        start = JournalStart(store, application)
        loaded = start.load()
        if loaded.epoch > 0 and not loaded.taken_over_by:
            start.new_epoch(new_token)


def _write_beside(store: ObjectStore, proposal: Proposal) -> None:
    """Every record has its object; one that cannot be read is written anew. The list of claims has the topic."""
    evidence = proposal.evidence
    unread = {note.key for note in evidence.notes}

    def write(record: Said) -> None:
        uuid = evidence.uuid(record)
        key, source = record_key(evidence.topic, uuid), evidence.sources.get(uuid)
        if source == key:
            return
        data = encode_catalog(uuid, record) if source is None else plain(read_record(store, source))
        if store.put(key, data, if_absent=key not in unread) is None:
            raise IntegrityError(
                f"{key} has been written meanwhile: stop whatever works on {evidence.topic} and try again"
            )

    with ThreadPoolExecutor(READERS, "record-writer") as pool:
        list(pool.map(write, proposal.records))
    claim = proposal.catalog().claim
    if claim is not None and claim.application:
        store.put(claim_key(claim.application, evidence.topic), str(evidence.topic).encode(), if_absent=True)


def _write_generation(store: ObjectStore, proposal: Proposal, at: int) -> None:
    evidence, topic, former = proposal.evidence, proposal.evidence.topic, proposal.evidence.in_force
    # Never a number that a writer may still know, or that manifests are left of. Where nothing is left that tells of a
    # former rebuild, the time does: what was lost once more is not made again under the same number.
    generation = max((*evidence.found, *evidence.summed, former or 0)) + 1
    generation = max(generation, at)
    log = NumberedLog(store, catalog_folder(topic, generation))

    def write(standing_record: tuple[CatalogHead, Said]) -> None:
        before, record = standing_record
        _append(log, before.next_slot, standing(before, plain(read_record(store, evidence.key(record)))), topic)

    with ThreadPoolExecutor(READERS, "record-writer") as pool:
        list(pool.map(write, _standing(CatalogHead(topic, generation=generation, next_slot=1), proposal.records)))
    if former is not None:
        # What is before it may be damaged, and is of no account any more.
        before = CatalogHead(topic, generation=former, next_slot=last_slot(evidence.found, former) + 1)
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
        raise IntegrityError(
            f"{log.key(slot)} has been written meanwhile: stop whatever works on {topic} and try again"
        )
