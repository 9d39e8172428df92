"""From a left-over managed ledger to the record of its deletion. Pure."""

from __future__ import annotations

from offloader.lifecycle.deletion.guard import MissingReferee, RefereeAsRead
from offloader.lifecycle.deletion.records import (
    DeletionEvidence,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.ledgers.evidence import Standing
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.told import leftover_told

NO_LEDGER = -1


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
