"""What brokers know of a topic's bridged ledgers, against what its bridge log says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from offloader.archive.findings import Finding, FindingKind
from offloader.archive.ledgers.contexts import LedgerContext
from offloader.metadata.bridged import BridgedLedgers, HandedLedger
from offloader.metadata.layout import bridge_folder
from offloader.metadata.stock_keys import data_key
from offloader.model import Position, TopicName


@dataclass(frozen=True, slots=True)
class BrokersView:
    """`contexts`: the ledgers of Pulsar's record, by id. `reported`: those that the broker reports as offloaded; None:
    no broker has said it."""

    contexts: Mapping[int, LedgerContext]
    reported: frozenset[int] | None = None

    def names(self, handed: HandedLedger) -> bool:
        """Whether brokers read a ledger from our objects."""
        found = self.contexts.get(handed.ledger.ledger)
        return found is not None and found.complete and found.uuid == handed.ledger.uuid


def compared(topic: TopicName, bridged: BridgedLedgers, view: BrokersView) -> Iterator[Finding]:
    """Where the two do not agree. What is off Pulsar's list, brokers have deleted: that is their right."""
    for ledger, handed in sorted(bridged.ledgers.items()):
        if ledger in view.contexts and handed.incarnation == _incarnation(bridged):
            yield from _context(topic, handed, view.contexts[ledger])
    yield from _stale(topic, bridged, view)
    yield from _passed(topic, bridged, view)


def _context(topic: TopicName, handed: HandedLedger, found: LedgerContext) -> Iterator[Finding]:
    ledger, bucket = handed.ledger, urlsplit(handed.bucket).netloc
    key, at = data_key(ledger.uuid, ledger.ledger), Position(handed.incarnation, ledger.ledger, 0)
    if not found.uuid:
        message = f"Pulsar's record has no copy of ledger {ledger.ledger}"
        yield Finding(FindingKind.MISSING_CONTEXT, key, message, topic, position=at)
    elif found.uuid != ledger.uuid:
        message = f"Pulsar's record has the copy {found.uuid} of ledger {ledger.ledger}"
        yield Finding(FindingKind.OTHER_CONTEXT, key, message, topic, position=at)
    elif not found.complete:
        message = f"Pulsar's record does not say that this copy of ledger {ledger.ledger} is complete"
        yield Finding(FindingKind.MISSING_CONTEXT, key, message, topic, position=at)
    elif found.bucket not in ("", bucket):
        message = f"Pulsar's record says that it is in bucket {found.bucket}, and it was built in {bucket}"
        yield Finding(FindingKind.OTHER_CONTEXT, key, message, topic, position=at)
    elif found.last != ledger.last:
        message = f"Pulsar's record has ledger {ledger.ledger} up to entry {found.last}, its bridge up to {ledger.last}"
        yield Finding(FindingKind.OTHER_CONTEXT, key, message, topic, position=at)


def _stale(topic: TopicName, bridged: BridgedLedgers, view: BrokersView) -> Iterator[Finding]:
    """But for those of a round that is under way: the record and the report are read one after the other."""
    if view.reported is None:
        return
    state = bridged.state
    rounds = () if state is None else (each for each in (state.round, state.leaving) if each is not None)
    changing = {ledger.ledger for each in rounds for ledger in each.ledgers}
    complete = {ledger for ledger, each in view.contexts.items() if each.complete}
    for ledger in sorted((complete ^ (view.reported & view.contexts.keys())) - changing):
        knows, says = ("reports", "has none") if ledger in view.reported else ("does not report", "has one")
        message = f"the broker {knows} a copy of ledger {ledger}, Pulsar's record {says}"
        yield Finding(FindingKind.STALE_BROKER, bridge_folder(topic), message, topic)


def _passed(topic: TopicName, bridged: BridgedLedgers, view: BrokersView) -> Iterator[Finding]:
    """Ledgers that clients would miss once BookKeeper has let go of them."""
    state = bridged.state
    if state is None:
        return
    if state.blocked is not None:
        at = Position(state.incarnation, state.blocked.ledger, 0)
        message = f"ledger {state.blocked.ledger} cannot be bridged: {state.blocked.verdict}: {state.blocked.why}"
        yield Finding(FindingKind.NOT_BRIDGED, bridge_folder(topic), message, topic, position=at)
    for ledger, found in sorted(view.contexts.items()):
        done = state.up_to is not None and found.last is not None and ledger <= state.up_to.ledger
        known = found.complete or ledger in bridged.ledgers or ledger in bridged.let_go
        if done and not known and found.last != -1:
            at = Position(state.incarnation, ledger, 0)
            message = f"the bridge reaches up to {state.up_to}, and no broker has a copy of ledger {ledger}"
            yield Finding(FindingKind.NOT_BRIDGED, bridge_folder(topic), message, topic, position=at)


def _incarnation(bridged: BridgedLedgers) -> int:
    return -1 if bridged.state is None else bridged.state.incarnation
