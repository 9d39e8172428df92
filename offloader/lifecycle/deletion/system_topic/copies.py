"""Copies in the bucket of Pulsar's own offloader that others ask for: the same evidence as that of `ledgers delete`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from offloader.lifecycle.bucket.copy_demand import CopyDemand, demand_copies
from offloader.lifecycle.bucket.orphans import ObjectScan
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.deletion.demand import DemandAnswered
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.system_topic.answers import BY, VERDICTS, MessageAnswer, MessageVerdict, payload_of
from offloader.lifecycle.deletion.system_topic.messages import PendingDeleteMessage
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.kinds import managed_ledger_of_topic, managed_ledgers_named


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
