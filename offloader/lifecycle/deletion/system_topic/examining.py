"""What others ask for goes through the same evidence as what a scan finds: one scan for many messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.demand import DeleteLedgerPayload, DemandAnswered, answer_demand
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.quarantine import LedgerMark, Quarantine
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionAnswer, LedgerComponent, LedgerType
from offloader.lifecycle.deletion.system_topic.answers import MessageAnswer, MessageVerdict
from offloader.lifecycle.deletion.system_topic.messages import PendingDeleteMessage
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import refusal_told

BY = "system topic"
_VERDICTS = {
    DeletionAnswer.STILL_IN_USE: MessageVerdict.STILL_IN_USE,
    DeletionAnswer.DOES_NOT_MATCH: MessageVerdict.DOES_NOT_MATCH,
    DeletionAnswer.ALREADY_GONE: MessageVerdict.ALREADY_GONE,
    DeletionAnswer.INVALID: MessageVerdict.INVALID,
}
_IN_A_BUCKET = "copies in a bucket are found and marked by `orphans scan` and `orphans quarantine`, with --stock"


@dataclass(frozen=True, slots=True)
class LedgerExaminer:
    """`open_side`: what must be closed is left with the stack; opened only where a ledger is asked for."""

    open_side: Callable[[ExitStack], BookKeeperSide]
    queue: DeletionQueue
    bounds: DeletionBounds
    now_ms: Callable[[], int]

    def __call__(self, messages: Sequence[PendingDeleteMessage]) -> list[MessageAnswer]:
        """See `ExamineAll`."""
        found = {one: early for one in messages if (early := _without_a_look(one)) is not None}
        asked = [one for one in messages if one not in found]
        if asked:
            with ExitStack() as stack:
                found |= self._looked_at(asked, self.open_side(stack))
        return [found[one] for one in messages]

    def _looked_at(
        self, asked: Sequence[PendingDeleteMessage], side: BookKeeperSide
    ) -> dict[PendingDeleteMessage, MessageAnswer]:
        scan = side.scanner.scan({one.ledger_id for one in asked})
        found = {one: answer for one in asked if (answer := _by_evidence(one, scan)) is not None}
        left = [one for one in asked if one not in found]
        if not left:
            return found
        would, why = self._mark(side, scan, (one.ledger_id for one in left), dry=True)
        if why:
            return found | dict.fromkeys(left, MessageAnswer(MessageVerdict.FAILED, why))
        found |= {one: answer for one in left if (answer := _by_record(one, would.get(one.ledger_id))) is not None}
        left = [one for one in left if one not in found]
        marked, why = self._mark(side, scan, (one.ledger_id for one in left), dry=False)
        return found | {one: _of_mark(marked.get(one.ledger_id), why) for one in left}

    def _mark(
        self, side: BookKeeperSide, scan: LedgerScan, wanted: Iterable[int], *, dry: bool
    ) -> tuple[dict[int, LedgerMark], str]:
        """By ledger, and why none is marked. What an operator has undone is marked again only by the operator."""
        chosen = frozenset(wanted)
        only = replace(scan, verdicts=tuple(one for one in scan.verdicts if one.ledger.ledger in chosen))
        found = Quarantine(self.queue, side, self.bounds, self.now_ms, BY, dry).mark(only)
        return {one.id: one for one in found.marks}, "; ".join(found.refusals)


def _payload(message: PendingDeleteMessage) -> DeleteLedgerPayload:
    """Its topic is compared with the record, which bears all the ways to name one. A schema's ledger may be asked for
    by its topic alone."""
    schema = message.ledger_component is LedgerComponent.SCHEMA_STORAGE
    return DeleteLedgerPayload(
        message.ledger_id,
        message.ledger_type,
        "",
        None if schema and not message.schema_id else message.ledger_component,
        message.schema_id,
        message.cursor_name,
        message.offload_context,
    )


def _without_a_look(message: PendingDeleteMessage) -> MessageAnswer | None:
    problem = _payload(message).problem
    if problem:
        return MessageAnswer(MessageVerdict.INVALID, problem)
    in_bucket = message.ledger_type is not LedgerType.LEDGER
    return MessageAnswer(MessageVerdict.FAILED, _IN_A_BUCKET) if in_bucket else None


def _by_evidence(message: PendingDeleteMessage, scan: LedgerScan) -> MessageAnswer | None:
    """None: it may be marked. Where something stands against deletion, what is absent may be elsewhere."""
    said = answer_demand(_payload(message), scan)
    refused = "; ".join(map(refusal_told, scan.refusals))
    if isinstance(said, DemandAnswered) and not (refused and said.answer is DeletionAnswer.ALREADY_GONE):
        return MessageAnswer(_VERDICTS[said.answer], said.why)
    if refused:
        return MessageAnswer(MessageVerdict.FAILED, refused)
    return None if said is None else MessageAnswer(MessageVerdict.FAILED, said.why)


def _by_record(message: PendingDeleteMessage, mark: LedgerMark | None) -> MessageAnswer | None:
    """None: it may be marked. What is pending already is compared, too."""
    if mark is None or mark.record is None:
        return _of_mark(mark, "")
    difference = message.differs_from(mark.record)
    if difference:
        return MessageAnswer(MessageVerdict.DOES_NOT_MATCH, difference)
    return _of_mark(mark, "") if mark.outcome is MarkOutcome.PENDING else None


def _of_mark(mark: LedgerMark | None, why: str) -> MessageAnswer:
    if mark is None:
        return MessageAnswer(MessageVerdict.FAILED, why or "nobody looked at it")
    if mark.outcome in (MarkOutcome.MARKED, MarkOutcome.PENDING):
        return MessageAnswer(MessageVerdict.MARKED, mark.why)
    if mark.outcome is MarkOutcome.SPARED:
        return MessageAnswer(MessageVerdict.STILL_IN_USE, "an operator has spared it")
    return MessageAnswer(MessageVerdict.FAILED, mark.why)
