"""Writing a proposal: nothing that can be read is changed, and nobody can read the catalog before all of it is there."""

from __future__ import annotations

from collections.abc import Callable

from offloader.archive.rebuilding.found import Evidence, Given
from offloader.archive.rebuilding.gather import gather
from offloader.archive.rebuilding.propose import Proposal, Proposed, propose
from offloader.errors import FatalError, IntegrityError
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.journal_start import JournalStart
from offloader.metadata.layout import catalog_folder, moved_catalog_folder, slot_name
from offloader.metadata.log import NumberedLog
from offloader.metadata.state import TopicCatalog
from offloader.model import OpenSegment, Segment, TopicName
from offloader.storage.base import ObjectStore


def check_agreement(proposal: Proposal) -> None:
    """Whether the journals can go on after the proposed catalog. Raises FatalError, IntegrityError."""
    catalog, evidence = proposal.catalog(), proposal.evidence
    if len(evidence.open) > 1:
        names = " and ".join(application for application, _ in evidence.open)
        raise FatalError(f"{evidence.topic}: {names} both have a segment of it open; `offloader takeover` ends one of them")
    for application, segment in evidence.open:
        _check_open(catalog, application, segment)


def rebuild(store: ObjectStore, topic: TopicName, given: Given, new_token: Callable[[], str]) -> Proposal:
    """Propose and write, whoever ran on the owner's journal being ended in between; nobody is where there is nothing to write. Raises
    FatalError, IntegrityError."""
    proposal = propose(gather(store, topic), given)
    check_agreement(proposal)
    if not proposal.new:
        return proposal
    end_running(store, proposal, new_token)
    again = propose(gather(store, topic), given)
    if again != proposal:
        raise FatalError(f"{topic}: something has changed while it was looked at; look at the proposal again")
    replace_catalog(store, proposal, new_token, given.at)
    return proposal


def replace_catalog(store: ObjectStore, proposal: Proposal, new_token: Callable[[], str], at: int) -> None:
    """Write what the proposal has and the catalog has not. Interrupted anywhere, it can be proposed and written again.

    The records go from the last slot to the first: until that one stands, the catalog has a hole that every reader refuses. What
    cannot be read, or was made by an earlier rebuild, is copied aside before it is replaced. Raises IntegrityError where somebody else
    writes.
    """
    topic, evidence = proposal.evidence.topic, proposal.evidence
    log = NumberedLog(store, catalog_folder(topic))
    slots = {proposed.slot for proposed in proposal.new}
    replaced = evidence.damaged.keys() | (evidence.made.keys() & slots)
    for slot in sorted(replaced):
        store.put(moved_catalog_folder(topic, at) + slot_name(slot), store.read(log.key(slot))[0], if_absent=True)
    first = min(slots)
    if len(slots) > 1 and first in evidence.made:
        store.delete([log.key(first)])
        replaced -= {first}
    for proposed in sorted(proposal.new, key=lambda p: p.slot, reverse=True):
        _write(store, log, proposed, topic, new_token(), replaced=proposed.slot in replaced)


def end_running(store: ObjectStore, proposal: Proposal, new_token: Callable[[], str]) -> None:
    """Begin a new epoch of the owner's journal: a process that still runs on it stops for good."""
    claim = proposal.catalog().claim
    owners = {application for application, _ in proposal.evidence.open} | ({claim.application} if claim is not None else set())
    for application in sorted(owners - {""}):
        start = JournalStart(store, application)
        loaded = start.load()
        if loaded.epoch > 0 and not loaded.taken_over_by:
            start.new_epoch(new_token)


def _write(store: ObjectStore, log: NumberedLog, proposed: Proposed, topic: TopicName, token: str, *, replaced: bool) -> None:
    slot, record = proposed.slot, proposed.record
    data = encode_catalog(record.uuid if isinstance(record, Segment) else token, record)
    if replaced:
        store.put(log.key(slot), data)
    elif log.append(slot, data) is not None:
        raise IntegrityError(f"{log.key(slot)} has been written meanwhile: stop whatever works on {topic} and try again")


def _check_open(catalog: TopicCatalog, application: str, segment: OpenSegment) -> None:
    topic: TopicName = catalog.topic
    owner = catalog.claim.application if catalog.claim is not None else ""
    if owner != application:
        raise FatalError(
            f"{topic}: the journal of {application} has segment {segment.uuid} open, the catalog would be {owner or 'nobody'}'s: "
            f"give --application {application}, or `offloader takeover` first"
        )
    if catalog.end is not None and segment.start <= catalog.end:
        raise IntegrityError(f"{topic}: the open segment starts at {segment.start}, the catalog would end at {catalog.end}")


def owner(evidence: Evidence, asked: str | None, configured: str) -> str:
    """Whose topic it is. Raises FatalError where another one is asked for than the records and journals know."""
    claims = [claim.application for claim in evidence.claims]
    known = claims[-1:] or [application for application, _ in evidence.open]
    if asked is not None and known and asked != known[-1]:
        raise FatalError(f"{evidence.topic} is {known[-1] or 'nobody'}'s, not {asked}'s: `offloader takeover` changes that")
    return known[-1] if known else configured if asked is None else asked
