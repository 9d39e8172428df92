"""What others ask for goes through the same evidence as what a scan finds, and as `ledgers delete`: for many messages
one scan of ledgers, and one look at copies in the bucket of Pulsar's own offloader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from offloader.errors import OffloadError, OvertakenError
from offloader.lifecycle.bucket.copy_demand import CopyDemand, demand_copies
from offloader.lifecycle.bucket.orphans import ObjectScan
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.demand import DemandAnswered, answer_demand
from offloader.lifecycle.deletion.ledger_records import UNCONFIRMED, needs_confirmation, requested_record
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.quarantine import LedgerMark, Quarantine
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionAnswer, LedgerType, ledger_record_name
from offloader.lifecycle.deletion.system_topic.answers import BY, VERDICTS, MessageAnswer, MessageVerdict, payload_of
from offloader.lifecycle.deletion.system_topic.messages import PendingDeleteMessage
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.kinds import managed_ledger_of_topic, managed_ledgers_named
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import refusal_told

NO_BUCKET = "nobody says which bucket copies are in: set lifecycle.stockBucket, or mark them with `ledgers delete`"


@dataclass(frozen=True, slots=True)
class LedgerExaminer:
    """`open_side`: what must be closed is left with the stack; opened only where a ledger is asked for. `copies`: see
    `CopyExaminer`; None: nobody says which bucket they are in."""

    open_side: Callable[[ExitStack], BookKeeperSide]
    queue: DeletionQueue
    bounds: DeletionBounds
    now_ms: Callable[[], int]
    copies: Callable[[Sequence[PendingDeleteMessage]], Mapping[PendingDeleteMessage, MessageAnswer]] | None = None

    def __call__(self, messages: Sequence[PendingDeleteMessage]) -> list[MessageAnswer]:
        """See `ExamineAll`."""
        found = {one: early for one in messages if (early := _without_a_look(one)) is not None}
        found |= self._copies([one for one in messages if one not in found and _is_copy(one)])
        asked = [one for one in messages if one not in found]
        if asked:
            with ExitStack() as stack:
                found |= self._looked_at(asked, self.open_side(stack))
        return [found[one] for one in messages]

    def _copies(self, asked: Sequence[PendingDeleteMessage]) -> Mapping[PendingDeleteMessage, MessageAnswer]:
        """What fails here keeps no ledger waiting. Raises OvertakenError."""
        if not asked or self.copies is None:
            return dict.fromkeys(asked, MessageAnswer(MessageVerdict.FAILED, NO_BUCKET))
        try:
            return self.copies(asked)
        except OvertakenError:
            raise
        except OffloadError as error:
            return dict.fromkeys(asked, MessageAnswer(MessageVerdict.FAILED, str(error)))

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
        found |= self._requested([one for one in left if one not in found], scan)
        left = [one for one in left if one not in found]
        marked, why = self._mark(side, scan, (one.ledger_id for one in left), dry=False)
        return found | {one: _of_mark(marked.get(one.ledger_id), why) for one in left}

    def _requested(
        self, asked: Sequence[PendingDeleteMessage], scan: LedgerScan
    ) -> dict[PendingDeleteMessage, MessageAnswer]:
        """Those that wait for an operator: whoever removes a topic's nodes and sends messages deletes nothing."""
        verdicts = {one.ledger.ledger: one for one in scan.verdicts if needs_confirmation(one)}
        found = [one for one in asked if one.ledger_id in verdicts]
        for ledger in {one.ledger_id for one in found}:
            former = self.queue.read(ledger_record_name(ledger))
            if former is None or (former.record.has_ended and not former.record.was_spared):
                self.queue.write(requested_record(verdicts[ledger], BY, self.now_ms()), former)
        return dict.fromkeys(found, MessageAnswer(MessageVerdict.REQUESTED, UNCONFIRMED))

    def _mark(
        self, side: BookKeeperSide, scan: LedgerScan, wanted: Iterable[int], *, dry: bool
    ) -> tuple[dict[int, LedgerMark], str]:
        """By ledger, and why none is marked. What an operator has undone is marked again only by the operator."""
        chosen = frozenset(wanted)
        only = replace(scan, verdicts=tuple(one for one in scan.verdicts if one.ledger.ledger in chosen))
        found = Quarantine(self.queue, side, self.bounds, self.now_ms, BY, dry).mark(only)
        return {one.id: one for one in found.marks}, "; ".join(found.refusals)


def _without_a_look(message: PendingDeleteMessage) -> MessageAnswer | None:
    problem = payload_of(message).problem
    return MessageAnswer(MessageVerdict.INVALID, problem) if problem else None


def _is_copy(message: PendingDeleteMessage) -> bool:
    return message.ledger_type is LedgerType.OFFLOAD_LEDGER


def _by_evidence(message: PendingDeleteMessage, scan: LedgerScan) -> MessageAnswer | None:
    """None: it may be marked. Where something stands against deletion, what is absent may be elsewhere."""
    said = answer_demand(payload_of(message), scan)
    refused = "; ".join(map(refusal_told, scan.refusals))
    if isinstance(said, DemandAnswered) and not (refused and said.answer is DeletionAnswer.ALREADY_GONE):
        return MessageAnswer(VERDICTS[said.answer], said.why)
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
    return _of_mark(mark, "") if mark.outcome in (MarkOutcome.PENDING, MarkOutcome.SPARED) else None


def _of_mark(mark: LedgerMark | None, why: str) -> MessageAnswer:
    if mark is None:
        return MessageAnswer(MessageVerdict.FAILED, why or "nobody looked at it")
    if mark.outcome in (MarkOutcome.MARKED, MarkOutcome.PENDING):
        return MessageAnswer(MessageVerdict.MARKED, mark.why)
    if mark.outcome is MarkOutcome.SPARED and mark.record and mark.record.answer is DeletionAnswer.REQUESTED:
        return MessageAnswer(MessageVerdict.REQUESTED, UNCONFIRMED)
    if mark.outcome is MarkOutcome.SPARED:
        return MessageAnswer(MessageVerdict.STILL_IN_USE, "an operator has spared it")
    return MessageAnswer(MessageVerdict.FAILED, mark.why)


@dataclass(frozen=True, slots=True)
class CopyExaminer:
    """`open_scanner`: of the bucket whose name is `bucket`; what must be closed is left with the stack. `now_ms`: by
    the clock of the store that has the queue."""

    open_scanner: Callable[[ExitStack], StockScanner]
    bucket: str
    queue: DeletionQueue
    bounds: DeletionBounds
    now_ms: Callable[[], int]

    def __call__(self, messages: Sequence[PendingDeleteMessage]) -> Mapping[PendingDeleteMessage, MessageAnswer]:
        """One look for all: the ledger lists are read once. What is not named by any is marked, and nothing more:
        `orphans purge --stock` has it deleted. Raises OffloadError: nobody could say."""
        with ExitStack() as stack:
            scanner = self.open_scanner(stack)
            found = demand_copies([payload_of(one) for one in messages], scanner, self.bucket)
            return {one: self._answer(one, demand) for one, demand in zip(messages, found, strict=True)}

    def _answer(self, message: PendingDeleteMessage, demand: CopyDemand) -> MessageAnswer:
        if isinstance(demand, DemandAnswered):
            return MessageAnswer(VERDICTS[demand.answer], demand.why)
        if not isinstance(demand, ObjectScan):
            return MessageAnswer(MessageVerdict.FAILED, demand.why)
        owners = {managed_ledger_of_topic(str(one.topic)) if one.topic else "" for one in demand.orphans}
        if not owners <= set(managed_ledgers_named(message.topic_name)):
            why = f"the copy says that it is of {' and '.join(sorted(owners)) or 'nobody'}, not of {message.topic_name}"
            return MessageAnswer(MessageVerdict.DOES_NOT_MATCH, why)
        return self._mark(demand)

    def _mark(self, scan: ObjectScan) -> MessageAnswer:
        """Data and index, or none of them. What an operator has undone is marked again only by the operator."""
        for dry in (True, False):
            marks = ObjectQuarantine(self.queue, self.bounds, self.now_ms, BY, dry).mark(scan)
            if marks.refusals:
                return MessageAnswer(MessageVerdict.FAILED, "; ".join(marks.refusals))
            worst = next((one for one in marks.marks if not one.outcome.is_pending), None)
            if worst is not None and worst.outcome is MarkOutcome.SPARED:
                return MessageAnswer(MessageVerdict.STILL_IN_USE, "an operator has spared it")
            if worst is not None:
                return MessageAnswer(MessageVerdict.FAILED, f"{worst.id}: {worst.outcome}: {worst.why}")
        return MessageAnswer(MessageVerdict.MARKED, "`orphans purge --stock` has it deleted")
