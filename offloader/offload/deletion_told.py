"""What becomes of deletions, as metrics and alarms."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.system_topic.interfaces import NotAnnounced
from offloader.lifecycle.deletion.watcher import PendingDeletions
from offloader.metrics import Metrics
from offloader.printable import printable

log = logging.getLogger(__name__)

DAMAGED_TOLD = 1000  # names that are remembered, so that each is told once


class DeletionTold:
    """The application's watcher. What a side refuses is told once, until it is something else or nothing."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._refused: dict[LedgerType, tuple[str, ...]] = {}
        self._damaged: set[str] = set()
        self._off = False

    def pending(self, pending: PendingDeletions, *, on: bool) -> None:
        others = [(*key, n) for key, n in pending.counts.items() if key[0] is not LedgerType.SUBSCRIPTION]
        self._metrics.deletions_pending(others, pending.damaged)
        removals = {state: pending.counts[LedgerType.SUBSCRIPTION, state] for state in _PENDING}
        in_flight = pending.in_flight(LedgerType.SUBSCRIPTION)
        self._metrics.cursor_removals_pending({str(one): n for one, n in removals.items() if n}, in_flight)
        for thing in pending.undoing:
            log.warning("the undo of %s was interrupted: call it again", thing, extra={"see": "cursor-removal"})
        waiting = sum(n for _, state, n in others if state in _IN_FLIGHT)
        if waiting and not on and not self._off:
            log.warning(
                "deletion is switched off: %d deletions are pending and stay", waiting, extra={"see": "deletion-off"}
            )
        self._off = bool(waiting and not on)

    def refused(self, refusals: Mapping[LedgerType, Sequence[str]]) -> None:
        now = {kind: tuple(each) for kind, each in refusals.items() if each}
        self._metrics.deletions_refused(sum(map(len, now.values())))
        for kind, each in now.items():
            if each != self._refused.get(kind):
                log.warning(
                    "none of the %s is deleted: %s", kind.many, " ".join(each), extra={"see": "deletion-refused"}
                )
        for kind in self._refused.keys() - now.keys():
            log.info("nothing stands against the deletion of %s any more", kind.many)
        self._refused = now

    def damaged(self, name: str, why: str) -> None:
        if name in self._damaged or len(self._damaged) >= DAMAGED_TOLD:
            return
        self._damaged.add(name)
        log.warning("the record of a deletion is passed over: %s", why, extra={"see": "deletion-damaged"})

    def failed(self, record: PendingDeleteLedgerInfo, why: str) -> None:
        if record.ledger_type is LedgerType.SUBSCRIPTION:
            self._metrics.cursor_removal("failed")
            log.info("deletion of %s failed, tried again: %s", record.thing, printable(why))
            return
        self._metrics.deletion_failed(record.ledger_type)
        log.info("deletion of %s failed, tried again: %s", record.name, printable(why))

    def ended(self, record: PendingDeleteLedgerInfo) -> None:
        answer = record.answer or DeletionAnswer.INVALID
        if record.ledger_type is LedgerType.SUBSCRIPTION:
            self._metrics.cursor_removal("removed" if answer is DeletionAnswer.DELETED else "kept")
            log.info("deletion of %s ended, %s: %s", record.thing, answer, printable(record.reason))
            return
        self._metrics.deletion_ended(record.ledger_type, answer)
        why = printable(record.reason) or "nothing is left to do"
        if answer in _TOLD:
            log.warning(
                "deletion of %s ended without one, %s: %s", record.name, answer, why, extra={"see": "deletion-kept"}
            )
        else:
            log.info("deletion of %s ended, %s: %s", record.name, answer, why)

    def gave_up(self, record: PendingDeleteLedgerInfo) -> None:
        if record.ledger_type is LedgerType.SUBSCRIPTION:
            self._metrics.cursor_removal("gave up")
            log.warning(
                "deletion of %s was given up: %s", record.thing, printable(record.reason),
                extra={"see": "cursor-removal-given-up"},
            )  # fmt: skip
            return
        self._metrics.deletion_gave_up(record.ledger_type)
        log.warning(
            "deletion of %s was given up: %s", record.name, printable(record.reason), extra={"see": "deletion-given-up"}
        )


_TOLD = (DeletionAnswer.DOES_NOT_MATCH, DeletionAnswer.INVALID, DeletionAnswer.HOLDS_DATA)
_PENDING = (DeletionState.MARKED, DeletionState.DELETING, DeletionState.UNDOING, DeletionState.GIVEN_UP)
_IN_FLIGHT = (DeletionState.MARKED, DeletionState.DELETING)


class SystemTopicCounts:
    """`SystemTopicEvents` as metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def sent(self, ledger_type: LedgerType) -> None:
        self._metrics.deletion_sent(ledger_type)

    def not_sent(self, why: NotAnnounced) -> None:
        self._metrics.deletion_not_sent(why)

    def received(self) -> None:
        self._metrics.deletion_received()

    def acknowledged(self) -> None:
        self._metrics.deletion_message("acknowledged")

    def sent_again(self) -> None:
        self._metrics.deletion_message("sent again")

    def gave_up(self) -> None:
        self._metrics.deletion_message("gave up")
