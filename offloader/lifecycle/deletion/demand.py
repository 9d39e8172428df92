"""Somebody wants a ledger to go: PIP-186's request, and what follows from it. Pure, no I/O.

*Still in use*, *does not match*, *already gone* and *invalid* are answers, not failures. The request is compared with
what is there, never believed."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.lifecycle.deletion.ledger_records import COMPONENTS, may_be_demanded, not_deletable
from offloader.lifecycle.deletion.machine import ReferencedLedger
from offloader.lifecycle.deletion.records import (
    PIP_TYPES,
    UUID,
    DeletionAnswer,
    DeletionOffloadContext,
    LedgerComponent,
    LedgerType,
)
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.ledgers.kinds import LedgerPurpose, managed_ledgers_named
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import confirmation_told


@dataclass(frozen=True, slots=True)
class DeleteLedgerPayload:
    """PIP-186's. What is empty, or None, is not said. `topic_name`: `persistent://…`, or a managed ledger's name."""

    ledger_id: int
    ledger_type: LedgerType = LedgerType.LEDGER
    topic_name: str = ""
    ledger_component: LedgerComponent | None = None
    schema_id: str = ""
    cursor_name: str = ""
    offload_context: DeletionOffloadContext | None = None

    @property
    def problem(self) -> str:
        """Why it can be no deletion; "": it can."""
        if self.ledger_id < 0:
            return "a ledger's id is not negative"
        if self.ledger_type not in PIP_TYPES:
            return f"{self.ledger_type} is no ledger"
        if self.ledger_type is LedgerType.OFFLOAD_LEDGER:
            return "" if _names_a_copy(self.offload_context) else "an OFFLOAD_LEDGER needs the uuid of its copy"
        if self.offload_context is not None:
            return "a LEDGER has no uuid: that is an OFFLOAD_LEDGER's"
        if self.ledger_component is LedgerComponent.MANAGED_CURSOR and not self.cursor_name:
            return "a MANAGED_CURSOR needs the name of its cursor"
        if self.ledger_component is LedgerComponent.SCHEMA_STORAGE and not self.schema_id:
            return "a SCHEMA_STORAGE needs the id of its schema"
        return ""


@dataclass(frozen=True, slots=True)
class DemandAnswered:
    """One of the four successes: nothing is left to do."""

    answer: DeletionAnswer
    why: str


@dataclass(frozen=True, slots=True)
class DemandDenied:
    """It is there, it may be what the request says, and it is not proven that nobody needs it. `suspect`: where an
    operator says that this is enough, it may be marked all the same."""

    why: str
    suspect: bool = False


def answer_demand(
    payload: DeleteLedgerPayload, scan: LedgerScan, *, suspect: bool = False, by_operator: bool = False
) -> DemandAnswered | DemandDenied | None:
    """What follows from a scan of that ledger. None: it may be marked; it never goes before the delay is over.
    `suspect`: an operator has looked, and suspect is enough. `by_operator`: an operator names the ledger, and so
    confirms what only an operator can."""
    problem = payload.problem
    if problem:
        return DemandAnswered(DeletionAnswer.INVALID, problem)
    verdict = next((one for one in scan.verdicts if one.ledger.ledger == payload.ledger_id), None)
    if verdict is None:
        gone = payload.ledger_id in scan.gone
        return DemandAnswered(DeletionAnswer.ALREADY_GONE, "BookKeeper has no such ledger") if gone else _unseen()
    difference = _difference(payload, verdict.ledger.purpose)
    if difference:
        return DemandAnswered(DeletionAnswer.DOES_NOT_MATCH, difference)
    if by_operator and verdict.confirmable:
        return None if verdict.deletable_on_demand else DemandDenied(" ".join(confirmation_told(verdict)))
    return _by_verdict(verdict, suspect=suspect)


def _by_verdict(verdict: LedgerVerdict, *, suspect: bool) -> DemandAnswered | DemandDenied | None:
    says = not_deletable(verdict, demanded=suspect and not verdict.confirmable)
    if isinstance(says, ReferencedLedger):
        return DemandAnswered(DeletionAnswer.STILL_IN_USE, f"it is named by {says.by}")
    if says is not None:
        return DemandDenied(says.why, may_be_demanded(verdict) and not verdict.kept)
    if verdict.kept and not verdict.rescued:
        return DemandDenied("it holds entries that no list has: they are data; `orphans rescue` copies them first")
    return None


def _unseen() -> DemandDenied:
    return DemandDenied("nobody could say whether it is there")


def _difference(payload: DeleteLedgerPayload, purpose: LedgerPurpose) -> str:
    """How a request differs from what the ledger says of itself; "": it does not."""
    component = None if purpose.referee is None else COMPONENTS.get(purpose.referee)
    if payload.ledger_component is not None and payload.ledger_component is not component:
        return f"the ledger is of {component or 'no component that we know'}, not of {payload.ledger_component}"
    if payload.topic_name and not _is_of_topic(payload.topic_name, purpose):
        return f"the ledger says that it is of {purpose.managed_ledger or purpose.schema or 'nobody'}"
    if payload.cursor_name and payload.cursor_name != purpose.cursor:
        return f"the ledger says that its cursor is {purpose.cursor!r}"
    if payload.schema_id and payload.schema_id != purpose.schema:
        return f"the ledger says that its schema is {purpose.schema!r}"
    return ""


def _is_of_topic(topic: str, purpose: LedgerPurpose) -> bool:
    if topic in (purpose.managed_ledger, purpose.schema):
        return True
    names = managed_ledgers_named(topic)
    schemas = {"/".join((*pieces[:-2], pieces[-1])) for pieces in (name.split("/") for name in names)}
    return purpose.managed_ledger in names or purpose.schema in schemas


def _names_a_copy(context: DeletionOffloadContext | None) -> bool:
    return context is not None and UUID.fullmatch(context.uuid) is not None
