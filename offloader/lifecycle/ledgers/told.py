"""A verdict as a person would tell it: one idea a sentence. Pure. Names of others are made fit to be printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from offloader.bookkeeper.model import LedgerState
from offloader.lifecycle.candidates import OrphanCandidate, OrphanSide, OrphanVerdict
from offloader.lifecycle.explaining.words import counted, moment_text
from offloader.lifecycle.ledgers.evidence import Fact, LedgerEvidence, LedgerVerdict, Remedy, SeenLedger, Standing
from offloader.lifecycle.ledgers.kinds import LedgerKind, LedgerPurpose
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.refusals import Refusal, RefusalKind
from offloader.lifecycle.ledgers.scanned import MissingLedger
from offloader.printable import printable


def told(verdict: LedgerVerdict) -> tuple[str, ...]:
    """What the ledger is, what was seen, what follows, and what would prove more."""
    ledger = verdict.ledger
    sentences = (
        f"Ledger {ledger.ledger} {_purpose(ledger.purpose, verdict.kind)}.",
        *_node(ledger),
        *(sentence for one in verdict.evidence for sentence in facts_told(one, ledger.ledger)),
        _STANDINGS[verdict.standing],
        *_kept(verdict),
        *_advice(verdict),
    )
    return tuple(printable(one) for one in sentences)


def as_candidate(verdict: LedgerVerdict) -> OrphanCandidate:
    """What a scan's report has of an orphan. Raises ValueError for what is none."""
    ledger = verdict.ledger
    sentences = (*(said for one in verdict.evidence for said in facts_told(one, ledger.ledger)), *_kept(verdict))
    return OrphanCandidate(
        side=OrphanSide.BOOKKEEPER,
        id=str(ledger.ledger),
        kind=str(verdict.kind),
        verdict=OrphanVerdict(verdict.standing),
        size=ledger.length if ledger.last_entry is not None else None,
        created_ms=ledger.created_ms,
        evidence=tuple(printable(one) for one in sentences),
        kept=verdict.kept,
    )


def leftover_told(leftover: LeftoverManagedLedger) -> tuple[str, ...]:
    """Why a managed ledger of pending acks belongs to nobody."""
    sentences = (
        f"The managed ledger {leftover.name} keeps a subscription's pending acknowledgements.",
        "Its name is made of a topic and a subscription.",
        *(sentence for one in leftover.evidence for sentence in facts_told(one)),
        f"It refers to {counted(len(leftover.ledgers), 'ledger')}, {leftover.size} bytes by its list: they go only "
        "after it.",
        _LEFTOVERS[leftover.standing],
        *(remedies_told(leftover.remedies) if leftover.standing is Standing.SUSPECT else ()),
    )
    return tuple(printable(one) for one in sentences)


def missing_told(missing: MissingLedger) -> tuple[str, ...]:
    """What a ledger's absence means."""
    referee = missing.referee
    sentences = (
        f"Ledger {missing.ledger} is named by {referee.node}.",
        "BookKeeper has no metadata of it.",
        "Whoever reads there stops before it, or goes on as if it had never been.",
    )
    return tuple(printable(one) for one in sentences)


def refusal_told(refusal: Refusal) -> str:
    """Why nothing is deleted, and what to do."""
    return printable(_REFUSALS[refusal.kind].format(refusal.detail))


def remedies_told(remedies: Sequence[Remedy]) -> tuple[str, ...]:
    """What would turn suspect into certain: all of it together."""
    if not remedies:
        return ("We know of nothing that would make it certain.",)
    first, *others = (_REMEDIES[one] for one in remedies)
    return (f"To make it certain, {first}.", *(f"Also, {one}." for one in others))


def facts_told(one: LedgerEvidence, ledger: int | None = None) -> tuple[str, ...]:
    """One link of the chain, in one sentence or a few."""
    this = "it" if ledger is None else f"ledger {ledger}"
    if one.fact is Fact.PASSED_BY:
        return (
            f"{_place(one)} does not name {this}.",
            f"It names ledger {one.other}, which was taken later.",
            f"So whoever made {this} can no longer list it there.",
        )
    if one.fact is Fact.NOT_PASSED:
        nothing_later = "no ledger" if one.other is None else f"no ledger later than {one.other}"
        return (f"{_place(one)} names {nothing_later}.", f"Whoever made {this} may still be about to list it.")
    if one.fact is Fact.MADE_SINCE:
        return (
            f"{one.node} was made after {this}.",
            "It was deleted and made again, or restored from a backup.",
            "So what it names proves nothing.",
        )
    return (_FACTS[one.fact](one),)


def _purpose(purpose: LedgerPurpose, kind: LedgerKind) -> str:
    if purpose.schema:
        return f"is for {_KINDS[kind]}: {purpose.schema}"
    if purpose.bucket:
        return f"is for {_KINDS[kind]} {purpose.bucket} of {purpose.managed_ledger}, cursor {purpose.cursor}"
    if purpose.cursor and kind is not LedgerKind.COMPACTED_VIEW:
        return f"is for {_KINDS[kind]} of {purpose.managed_ledger}, cursor {purpose.cursor}"
    if purpose.managed_ledger:
        return f"is for {_KINDS[kind]} of {purpose.managed_ledger}"
    return f"is for {_KINDS[kind]}"


def _node(ledger: SeenLedger) -> tuple[str, ...]:
    made = (f"It was created at {moment_text(ledger.created_ms)}.",) if ledger.created_ms is not None else ()
    if ledger.state is None:
        return made
    if ledger.last_entry is None:
        return (*made, "It is open." if ledger.state is LedgerState.OPEN else "It is being recovered.")
    return (*made, f"It is closed, with {counted(ledger.last_entry + 1, 'entry')} and {ledger.length} bytes.")


def _kept(verdict: LedgerVerdict) -> tuple[str, ...]:
    if not verdict.kept:
        return ()
    if verdict.rescued:
        return ("What is in it is data, and the archive has it: it is deleted only where somebody names it.",)
    data = "What is in it is data: it is reported and never deleted."
    if verdict.confirmable:
        return ("What is in it is data: it is deleted only once it was rescued, and only where somebody names it.",)
    if verdict.ledger.last_entry is None:
        return (data,)
    return data, f"`offloader orphans rescue {verdict.ledger.ledger}` copies it into the archive."


def _advice(verdict: LedgerVerdict) -> tuple[str, ...]:
    if verdict.confirmable:
        return confirmation_told(verdict)
    return remedies_told(verdict.remedies) if verdict.standing is Standing.SUSPECT else ()


def confirmation_told(verdict: LedgerVerdict) -> tuple[str, ...]:
    """How an operator has a ledger deleted that nothing in the metadata will ever prove to be an orphan."""
    ledger = verdict.ledger.ledger
    unknown = any(one.fact is Fact.NAMESPACE_UNKNOWN for one in verdict.evidence)
    elsewhere = ("If another metadata store has the namespace, name that store in lifecycle.metadataStores.",)
    if verdict.ledger.last_entry is None:
        step = f"To delete it, run `offloader ledgers close {ledger}` first: what is in it shows only then."
    elif verdict.deletable_on_demand:
        step = f"To delete it, run `offloader orphans quarantine {ledger} --yes` while no broker has its topic loaded."
    else:
        step = (
            f"To delete it, run `offloader orphans rescue {ledger} --yes`, then "
            f"`offloader orphans quarantine {ledger} --yes` while no broker has its topic loaded."
        )
    return (*(elsewhere if unknown else ()), step)


def _place(one: LedgerEvidence) -> str:
    return f"{one.node} (version {one.version})" if one.version is not None else one.node


def _named(one: LedgerEvidence) -> str:
    return f" {one.text}" if one.text else ""


def _foreign_told(one: LedgerEvidence) -> str:
    return f"Nothing more can be said of it: {one.text}." if one.text else "Nothing more can be said of it."


_FACTS: Mapping[Fact, Callable[[LedgerEvidence], str]] = {
    Fact.NAMED: lambda one: f"It is named by {_place(one)}.",
    Fact.OWNER_ABSENT: lambda one: f"There is no {one.node}.",
    Fact.CURSOR_ABSENT: lambda one: f"There is no {one.node}.",
    Fact.LEFT_BOOKKEEPER: lambda one: f"{_place(one)} says that it was deleted from BookKeeper.",
    Fact.COPY_READ_BACK: lambda _: "Its copy in the bucket was read back and is whole.",
    Fact.LOCATOR_ABSENT: lambda one: f"There is no {one.node}: it was deleted, or it is about to be put there.",
    Fact.LOCATOR_HAS_HOLES: lambda one: (
        f"{_place(one)} does not name all versions: others may name older ones, as old brokers did."
    ),
    Fact.NO_CURSOR_LEDGER: lambda one: f"{_place(one)} names no ledger at the moment.",
    Fact.NO_VIEW_NAMED: lambda one: f"{one.node} names no compacted view.",
    Fact.CURSOR_IS_THERE: lambda one: f"{_place(one)} is there, and may be about to name it.",
    Fact.COPY_NOT_READ: lambda one: f"Its copy in the bucket{_named(one)} was not read back.",
    Fact.COPY_FAILS: lambda one: f"Its copy in the bucket{_named(one)} is not whole.",
    Fact.UNREADABLE: lambda one: f"{_place(one)} cannot be read: {one.text}.",
    Fact.SAYS_MORE: lambda one: f"{_place(one)} says more than this version understands.",
    Fact.NAMESPACE_UNKNOWN: lambda one: f"There is no {one.node}: no metadata store that was read has the namespace.",
    Fact.MAY_BE_SHARED: lambda _: "Nobody has said that no other cluster keeps ledgers in this BookKeeper.",
    Fact.OTHER_USE: lambda one: f"It may be something else: {one.text}.",
    Fact.FOREIGN: _foreign_told,
    Fact.ANOTHER_CLUSTER: lambda one: f"It belongs to another cluster: {one.text}.",
    Fact.EMPTY: lambda _: "It has no entries: it was never used.",
    Fact.ENTRIES_UNKNOWN: lambda _: "Whether it has entries shows only once it is closed.",
    Fact.TRIMMED: lambda one: f"The list begins with ledger {one.other}: it was trimmed.",
    Fact.NO_TRIMS_WORK: lambda one: (
        "It has entries, and the list is empty: no trim leaves that."
        if one.other is None
        else f"It has entries, and the list begins before it, with ledger {one.other}: no trim leaves that."
    ),
    Fact.FORMER_DATA: lambda _: "It has entries, and is older than the list: no trim of that list leaves it.",
    Fact.UNCLAIMED_DATA: lambda _: "It has entries, and nothing in the metadata can prove that they may go.",
    Fact.RESCUED: lambda one: f"Its entries were rescued on {one.text}: the archive has a copy of all of them.",
    Fact.RESCUED_IN_PART: lambda one: (
        f"On {one.text} {one.other} of its entries were rescued; no bookie gave the others."
    ),
}

_STANDINGS = {
    Standing.REFERENCED: "So it is in use.",
    Standing.CERTAIN: "So it is an orphan, and that is certain.",
    Standing.SUSPECT: "So it may be an orphan, and it is left alone.",
    Standing.FOREIGN: "So it is foreign, and is never touched.",
}

_LEFTOVERS = {
    Standing.CERTAIN: "So it belongs to nobody, and that is certain.",
    Standing.SUSPECT: "So it may belong to nobody, and it is left alone.",
}

_KINDS = {
    LedgerKind.DATA: "data",
    LedgerKind.CURSOR: "a subscription's position",
    LedgerKind.SCHEMA: "a topic's schema",
    LedgerKind.COMPACTED_VIEW: "the compacted view",
    LedgerKind.DELAYED_INDEX: "the index of delayed messages",
    LedgerKind.TRANSACTION_LOG: "the transaction log",
    LedgerKind.PENDING_ACKS: "pending acknowledgements",
    LedgerKind.HEALTH_CHECK: "a broker's health check",
    LedgerKind.FUNCTIONS_PACKAGES: "functions' packages",
    LedgerKind.FOREIGN: "something that we do not know",
}

_REMEDIES = {
    Remedy.LOAD_TOPIC: "have its topic loaded: the new owner lists a later ledger",
    Remedy.LOAD_AND_ACKNOWLEDGE: "have its topic loaded and something acknowledged: the cursor gets a later ledger",
    Remedy.NEW_SCHEMA: "put another version of the schema",
    Remedy.COMPACT: "have the topic compacted once more",
    Remedy.REMOVE_CURSOR: "remove the subscription",
    Remedy.READ_COPY: "have its copy in the bucket read back (lifecycle.stockBucket names the bucket)",
    Remedy.REPAIR_NODE: "see that everything can be read",
    Remedy.NEWER_OFFLOADER: "look with a version of the offloader that knows these fields",
    Remedy.KNOW_NAMESPACE: "name the metadata store that has its namespace (lifecycle.metadataStores)",
    Remedy.DECLARE: "say lifecycle.bookkeeperIsNotShared: true, if that is so",
}

_REFUSALS = {
    RefusalKind.OTHER_METADATA: "A broker keeps its metadata elsewhere: {}. Configure the same store and chroot.",
    RefusalKind.OTHER_BOOKKEEPER: "A broker uses another BookKeeper: {}. Configure the same one.",
    RefusalKind.NOTHING_THERE: "{} is missing or empty. Look whether the chroot is right.",
    RefusalKind.LISTING_FAILED: "A listing failed: {}. Scan again.",
    RefusalKind.ANOTHER_CLUSTER: "A ledger belongs to another cluster: {}. Name all metadata stores.",
    RefusalKind.MAY_BE_SHARED: "Say lifecycle.bookkeeperIsNotShared: true if no other cluster uses this BookKeeper.",
    RefusalKind.NO_GUARD: "References and ledgers are in different ZooKeepers: no deletion can be guarded.",
    RefusalKind.IN_TROUBLE: "Not well: {}. Wait until it is.",
}
