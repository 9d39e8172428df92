"""From the verdict on a ledger, or on a left-over managed ledger, to the record of its deletion, and to what a second
look says. Pure."""

from __future__ import annotations

from dataclasses import replace

from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.model import LedgerState
from offloader.bookkeeper.nodes import Node
from offloader.errors import DamagedRecordError
from offloader.lifecycle.deletion.guard import GuardCase, MissingReferee, RefereeAsRead, StandingReferee
from offloader.lifecycle.deletion.machine import (
    HOLDS_DATA,
    FailedLook,
    ReferencedLedger,
    UnprovenLedger,
    UnreferencedLedger,
    kept,
)
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    DeletionEvidence,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.ledgers.evidence import CONTENTS, Fact, LedgerVerdict, Standing, proof_of
from offloader.lifecycle.ledgers.kinds import RefereeKind
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.told import facts_told, leftover_told, told
from offloader.printable import printable

COMPONENTS = {
    RefereeKind.LEDGER_LIST: LedgerComponent.MANAGED_LEDGER,
    RefereeKind.CURSOR_NODE: LedgerComponent.MANAGED_CURSOR,
    RefereeKind.SCHEMA_LOCATOR: LedgerComponent.SCHEMA_STORAGE,
    RefereeKind.COMPACTION_CURSOR: LedgerComponent.COMPACTED_VIEW,
    RefereeKind.DELAYED_BUCKETS: LedgerComponent.DELAYED_INDEX,
}
_PROOFS = {
    Fact.OWNER_ABSENT: DeletionProof.REFEREE_ABSENT,
    Fact.CURSOR_ABSENT: DeletionProof.REFEREE_ABSENT,
    Fact.PASSED_BY: DeletionProof.PASSED_BY,
    Fact.COPY_READ_BACK: DeletionProof.BOOKKEEPER_DELETED,
}
UNCONFIRMED = "its topic is absent, and it may hold data: an operator confirms it with `orphans quarantine ID --yes`"
_WITHOUT_MESSAGES = frozenset({RefereeKind.CURSOR_NODE, RefereeKind.DELAYED_BUCKETS})
_LEFT_TO_OPERATORS = frozenset({Fact.OWNER_ABSENT, Fact.LEFT_BOOKKEEPER})
_PASSING = (Fact.UNREADABLE, Fact.COPY_NOT_READ)  # somebody could not answer: that is no verdict

NO_LEDGER = -1


def candidate_of(
    verdict: LedgerVerdict, node: LedgerNode, evidence: DeletionEvidence, by: str
) -> PendingDeleteLedgerInfo:
    """What `marked` takes. `by`: who marks it."""
    purpose = verdict.ledger.purpose
    component = COMPONENTS.get(purpose.referee) if purpose.referee is not None else None
    if component is None:
        raise ValueError(f"ledger {verdict.ledger.ledger} has no component: it is never deleted")
    return PendingDeleteLedgerInfo(
        ledger_id=verdict.ledger.ledger,
        ledger_type=LedgerType.LEDGER,
        ledger_component=component,
        topic_name=purpose.managed_ledger,
        node=node,
        evidence=evidence,
        state=DeletionState.MARKED,
        marked_at=0,
        marked_by=by,
        cursor_name=purpose.cursor,
        schema_id=purpose.schema,
    )


def kept_record(verdict: LedgerVerdict, by: str, now: int) -> PendingDeleteLedgerInfo:
    """That a ledger holds data. Nothing proves that it may go, and nothing of it is needed to bring it back."""
    referee = verdict.referees[0]
    says = told(verdict), facts_of(verdict)
    evidence = DeletionEvidence(DeletionProof.ON_DEMAND, referee.node, referee.version, *says)
    node = LedgerNode(b"", verdict.ledger.version, verdict.ledger.created_ms or 0)
    record = candidate_of(verdict, node, evidence, by)
    return kept(replace(record, marked_at=now), DeletionAnswer.HOLDS_DATA, HOLDS_DATA, now)


def requested_record(verdict: LedgerVerdict, by: str, now: int) -> PendingDeleteLedgerInfo:
    """That others have asked for the deletion of a ledger that may hold data. Nothing follows from it: an operator who
    confirms it marks the ledger by its number, with all evidence anew."""
    record = kept_record(verdict, by, now)
    return replace(record, answer=DeletionAnswer.REQUESTED, reason=UNCONFIRMED)


def needs_confirmation(verdict: LedgerVerdict) -> bool:
    """Whether nothing but the absence of its topic proves that it may go, and it may hold entries."""
    absent = any(one.fact is Fact.OWNER_ABSENT for one in verdict.evidence)
    return absent and not verdict.ledger.empty


def is_beyond_doubt(verdict: LedgerVerdict) -> bool:
    """Whether no operator has to look before it is quarantined: a confirmed orphan whose topic exists, that is closed,
    and that is empty or a cursor's or a delayed index's. What a trim seems to have left of messages, schemas and
    compacted views may be what a restore of metadata lost."""
    facts, ledger = {one.fact for one in verdict.evidence}, verdict.ledger
    closed = ledger.last_entry is not None
    harmless = ledger.empty or ledger.purpose.referee in _WITHOUT_MESSAGES
    return verdict.deletable and closed and harmless and not facts & _LEFT_TO_OPERATORS


def may_be_demanded(verdict: LedgerVerdict) -> bool:
    """Whether it may be marked where an operator asks for this very ledger: all that speaks against it is that its list
    has no greater id yet. Then whoever is about to list it can be stopped: the list is written anew."""
    doubts = {one.fact for one in verdict.evidence} - CONTENTS
    by_list = verdict.ledger.purpose.referee is RefereeKind.LEDGER_LIST
    return verdict.standing is Standing.SUSPECT and by_list and doubts == {Fact.NOT_PASSED}


def evidence_of(
    verdict: LedgerVerdict, referees: tuple[RefereeAsRead, ...], *, demanded: bool = False
) -> DeletionEvidence | None:
    """A verdict's proof in the record's form. `referees`: the nodes that the verdict names, in its order, as they are.
    `demanded`: an operator has asked for this very ledger. None: it proves nothing that could be guarded."""
    if demanded and may_be_demanded(verdict):
        one = next((one for one in referees if isinstance(one, StandingReferee)), None)
        said = told(verdict), facts_of(verdict)
        return None if one is None else DeletionEvidence(DeletionProof.ON_DEMAND, one.path, one.version, *said)
    if demanded and verdict.confirmable and referees:
        first = referees[0]
        version = first.version if isinstance(first, StandingReferee) else None
        proof = DeletionProof.ON_DEMAND if verdict.about_to_be_named else DeletionProof.CONFIRMED
        return DeletionEvidence(proof, first.path, version, told(verdict), facts_of(verdict))
    proofs = {_PROOFS[one.fact] for one in verdict.evidence if one.fact in _PROOFS}
    if verdict.standing is not Standing.CERTAIN or not proofs:
        return None
    proof = next(one for one in _PROOFS.values() if one in proofs)
    absent = proof is DeletionProof.REFEREE_ABSENT
    for referee in referees:
        if isinstance(referee, MissingReferee) == absent:
            version = None if isinstance(referee, MissingReferee) else referee.version
            return DeletionEvidence(proof, referee.path, version, told(verdict), facts_of(verdict))
    return None


def facts_of(verdict: LedgerVerdict) -> tuple[str, ...]:
    """What two looks are compared by."""
    return tuple(sorted(" ".join(filter(None, one)) for one in proof_of(verdict)))


def node_of(node: Node) -> LedgerNode:
    """A ledger's node in the record's form."""
    return LedgerNode(node.value, node.version, node.created_ms, node.acl or ())


def not_deletable(
    verdict: LedgerVerdict, *, demanded: bool = False
) -> ReferencedLedger | UnprovenLedger | FailedLook | None:
    """What a look says of a verdict that deletes nothing; None: it may be deleted, or holds data."""
    if verdict.standing is Standing.CERTAIN or (demanded and (may_be_demanded(verdict) or verdict.confirmable)):
        return None
    if verdict.standing is Standing.REFERENCED:
        return ReferencedLedger(printable(verdict.referees[0].node if verdict.referees else "a node"))
    said = printable(" ".join(text for one in verdict.evidence for text in facts_told(one, verdict.ledger.ledger)))
    if verdict.standing is Standing.SUSPECT and any(one.fact in _PASSING for one in verdict.evidence):
        return FailedLook(said)
    return UnprovenLedger(f"{verdict.standing}: {said}")


def was_open_with_entries(recorded: LedgerNode, verdict: LedgerVerdict) -> bool:
    """Whether entries that look trimmed have shown only since a record was written, of a ledger that was open then. A
    broker closes what it trims. So metadata were rolled back, and what the list begins with was trimmed since."""
    trimmed = any(one.fact is Fact.TRIMMED for one in verdict.evidence)
    if not (trimmed and recorded.data):  # without data it is the record of what held some: see `kept_record`
        return False
    try:
        return not decode_metadata(recorded.data).closed
    except DamagedRecordError:  # nobody knows what it was
        return True


def unreferenced(
    verdict: LedgerVerdict, record: PendingDeleteLedgerInfo, node: LedgerNode, evidence: DeletionEvidence, now_ms: int
) -> UnreferencedLedger:
    """What was marked as rescued holds data, also where by now it looks like what a trim left. `node`: as it is.
    `now_ms`: by ZooKeeper's clock."""
    return UnreferencedLedger(
        node=node,
        evidence=evidence,
        age=now_ms - node.ctime,
        seen_at=now_ms,
        is_open=verdict.ledger.state is not LedgerState.CLOSED,
        holds_data=_holds_data(record, verdict),
    )


def marked_as_rescued(record: PendingDeleteLedgerInfo) -> bool:
    """Whether somebody marked it who knew that it holds data, and that the archive has a copy."""
    return str(Fact.RESCUED) in record.evidence.facts


def _holds_data(record: PendingDeleteLedgerInfo, verdict: LedgerVerdict) -> bool:
    held = verdict.kept or marked_as_rescued(record) or was_open_with_entries(record.node, verdict)
    return held and not verdict.rescued


def fits(record: PendingDeleteLedgerInfo, case: GuardCase) -> bool:
    """Whether what the guard was made of is what the record says."""
    ledger = case.ledger
    return (ledger.ledger, ledger.version, ledger.created_ms) == (
        record.ledger_id,
        record.node.version,
        record.node.ctime,
    )


def leftover_candidate(
    leftover: LeftoverManagedLedger, node: LedgerNode, evidence: DeletionEvidence, by: str
) -> PendingDeleteLedgerInfo:
    """What `marked` takes. `by`: who marks it."""
    return PendingDeleteLedgerInfo(
        ledger_id=NO_LEDGER,
        ledger_type=LedgerType.MANAGED_LEDGER,
        ledger_component=LedgerComponent.PENDING_ACKS,
        topic_name=leftover.name,
        node=node,
        evidence=evidence,
        state=DeletionState.MARKED,
        marked_at=0,
        marked_by=by,
    )


def leftover_evidence(leftover: LeftoverManagedLedger, owners: tuple[RefereeAsRead, ...]) -> DeletionEvidence | None:
    """None: it proves nothing that could be guarded."""
    absent = next((one.path for one in owners if isinstance(one, MissingReferee)), None)
    if leftover.standing is not Standing.CERTAIN or absent is None:
        return None
    facts = tuple(sorted(" ".join(filter(None, (one.fact, one.store, one.node))) for one in leftover.evidence))
    return DeletionEvidence(DeletionProof.REFEREE_ABSENT, absent, None, leftover_told(leftover), facts)
