"""Why one ledger is still there. Pure. Whether it is an orphan is the scan's to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offloader.bookkeeper.model import LedgerMetadata, LedgerState
from offloader.lifecycle.explaining.places import TopicPlaces, places_told
from offloader.lifecycle.explaining.words import Explanation, counted, moment_text, size_text
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import missing_told, told
from offloader.lifecycle.topics.cursors.held import first_needed
from offloader.lifecycle.topics.cursors.stored import StoredTopic

_STATES = {
    LedgerState.OPEN: "it is open: somebody may still write it",
    LedgerState.IN_RECOVERY: "somebody began to close it and did not finish",
}


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """`metadata` None: BookKeeper has none. `topic`: that of its owner, where it names one and that is there.

    `scan`: of this ledger; None: none was made. `archived`: the archive accounts for all of it. `places`: where the
    ledgers of its topic can be read from.
    """

    ledger: int
    metadata: LedgerMetadata | None
    owner: str = ""
    topic: StoredTopic | None = None
    scan: LedgerScan | None = None
    archived: bool | None = None
    places: TopicPlaces | None = None
    unknown: tuple[str, ...] = ()

    @property
    def verdict(self) -> LedgerVerdict | None:
        """The scan's."""
        verdicts = self.scan.verdicts if self.scan is not None else ()
        return next((one for one in verdicts if one.ledger.ledger == self.ledger), None)


def explain_ledger(facts: LedgerFacts) -> Explanation:
    """What it is, who refers to it, what it waits for."""
    if facts.metadata is None:
        return _explain_absent(facts)
    because = (*_itself(facts, facts.metadata), *_judged(facts), *_listed(facts), *_places(facts))
    return Explanation.of(because, _advice(facts), facts.unknown)


def _explain_absent(facts: LedgerFacts) -> Explanation:
    missing = [one for one in facts.scan.missing if one.ledger == facts.ledger] if facts.scan is not None else []
    gone = f"BookKeeper has no metadata of ledger {facts.ledger}: it is deleted, or there never was one."
    if missing:
        return Explanation.of(
            (gone, *(sentence for one in missing for sentence in missing_told(one))),
            [
                f"Where the offloader deleted it not long ago: `offloader orphans undo {facts.ledger}`. Else bring its "
                "node back from a copy of ZooKeeper's data, before the bookies collect."
            ],
            facts.unknown,
        )
    unnamed = () if facts.scan is None else ("Nothing refers to it.",)
    return Explanation.of(
        (gone, *unnamed, *_collected()),
        ["`offloader explain BOOKIE` says how a bookie's collection stands."],
        facts.unknown,
    )


def _collected() -> Iterator[str]:
    yield (
        "Its entries stay on a bookie until that collects, and their room in an entry log until nothing in that log is "
        "live, or it is compacted."
    )


def _itself(facts: LedgerFacts, metadata: LedgerMetadata) -> Iterator[str]:
    made = "" if metadata.listed_ms is None else f" It was made at {moment_text(metadata.listed_ms)}."
    whose = f" of the managed ledger {facts.owner}" if facts.owner else ""
    if metadata.closed:
        entries = f"{counted(metadata.last_entry + 1, 'entry')} of {size_text(metadata.length)} in each copy"
        yield f"Ledger {facts.ledger}{whose} is closed, with {entries}.{made}"
    else:
        yield f"Of ledger {facts.ledger}{whose} nobody has counted the entries: {_STATES[metadata.state]}.{made}"
    bookies = sorted({bookie for fragment in metadata.fragments for bookie in fragment.ensemble})
    yield f"{counted(metadata.write_quorum, 'copy')} of each entry are on {', '.join(bookies)}."


def _judged(facts: LedgerFacts) -> Sequence[str]:
    return told(facts.verdict) if facts.verdict is not None else ()


def _listed(facts: LedgerFacts) -> Iterator[str]:
    if facts.topic is None:
        return
    ids = [one.ledger for one in facts.topic.listed]
    if facts.ledger not in ids:
        yield f"{facts.topic.topic} does not list it as data."
        return
    at = ids.index(facts.ledger)
    yield f"{facts.topic.topic} lists it: it is number {at + 1} of {len(ids)}, oldest first."
    if at == len(ids) - 1:
        yield "It is the topic's last ledger, which never goes before there is another one."
    holders = sorted(
        name
        for name, one in facts.topic.cursors.items()
        if one.state is None or first_needed(facts.topic.ledgers, one.state.mark_delete) <= at
    )
    if holders:
        yield f"These subscriptions hold it back: {', '.join(holders)}."
    elif at < len(ids) - 1:
        yield "No subscription holds it back: retention does, or nobody has the topic loaded."
    if facts.archived is not None:
        yield "The archive has all of it." if facts.archived else "The archive does not have all of it yet."


def _places(facts: LedgerFacts) -> Iterator[str]:
    if facts.places is not None:
        own = (one for one in facts.places.ledgers if one.ledger == facts.ledger)
        yield from places_told(TopicPlaces(tuple(own)))


def _advice(facts: LedgerFacts) -> Iterator[str]:
    if facts.topic is not None and facts.ledger in {one.ledger for one in facts.topic.listed}:
        yield f"`offloader explain {facts.topic.topic}` says what keeps the topic's data."
    elif facts.verdict is None:
        yield f"`offloader orphans explain {facts.ledger}` says whether anything refers to it, and what follows."
    else:
        yield from _advice_by(facts.verdict)
    if facts.metadata is not None and not facts.metadata.closed:
        yield f"`offloader ledgers inspect {facts.ledger}` shows what its bookies hold, and what closing it comes to."


def _advice_by(verdict: LedgerVerdict) -> Iterator[str]:
    ledger = verdict.ledger.ledger
    if verdict.deletable:
        yield f"`offloader orphans quarantine {ledger} --yes` marks it; nothing goes before the quarantine is over."
    yield f"`offloader orphans explain {ledger}` says what stands against its deletion."
