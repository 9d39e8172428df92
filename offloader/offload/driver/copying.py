"""Ledgers that brokers have offloaded: under which uuids, has each copied into its segment, and journals what came of
it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from offloader.errors import FatalError, IntegrityError, OffloadError, RetryableError
from offloader.metadata.state import OpenTopic, TopicState
from offloader.migrate.ledger_copy import LedgerCopier, TakenLedger, WantedCopy
from offloader.model import FailureKind, TopicName
from offloader.offload.core import segments
from offloader.offload.core.decisions import Copy
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context
from offloader.offload.driver.receiving import tell_of_abandoned
from offloader.offload.driver.work import WorkKind
from offloader.ports.admin import Admin

KNOWN_MS = 60_000
log = logging.getLogger(__name__)


class _Known(NamedTuple):
    at: int
    uuids: Mapping[int, str]


class OffloadedCopies:
    """For the topics that are taken over now. From any thread; at any time by one for each topic."""

    def __init__(self, admin: Admin, clock_ms: Callable[[], int]) -> None:
        self._admin = admin
        self._clock_ms = clock_ms
        self._known: dict[TopicName, _Known] = {}

    def uuid(self, topic: TopicName, ledger: int) -> str | None:
        """As brokers said within a minute; None: they say now that they have not offloaded the ledger."""
        now, known = self._clock_ms(), self._known.get(topic)
        if known is None or not 0 <= now - known.at < KNOWN_MS or ledger not in known.uuids:
            known = _Known(now, self._admin.offloaded_copies(topic))
            self._known[topic] = known
        return known.uuids.get(ledger)

    def doubt(self, topic: TopicName) -> None:
        """What a copy was made by was wrong: brokers are asked again."""
        self._known.pop(topic, None)

    def forget_old(self) -> None:
        """What nobody goes by any more."""
        now = self._clock_ms()
        for topic, known in list(self._known.items()):
            if not 0 <= now - known.at < KNOWN_MS:
                self._known.pop(topic, None)


class Copying:
    """The copies under way, and those that have ended and are not journaled yet."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._offloaded = OffloadedCopies(context.admin, context.clock_ms)
        self._done: list[tuple[Topic, OpenTopic, TakenLedger | OffloadError]] = []

    def start(self, topic: Topic, step: Copy) -> None:
        """Have a ledger copied, unless one of the topic is."""
        call = partial(_copied, self._context, self._offloaded, topic, step)
        self._context.work.post(WorkKind.COPY, topic.name, call, partial(self._take, topic, step.state))

    def _take(self, topic: Topic, state: OpenTopic, answer: TakenLedger | OffloadError) -> None:
        self._done.append((topic, state, answer))

    def collect(self) -> None:
        """Journal what came of all copies that have ended, in one record."""
        states = []
        self._offloaded.forget_old()
        for topic, copied, answer in self._done:
            if isinstance(answer, OffloadError):
                self._offloaded.doubt(topic.name)
            state = self._context.state(topic.name)
            if isinstance(state, OpenTopic) and state.open == copied.open:
                states.append(self._outcome(topic, state, answer))
        self._context.journal.record(states)
        self._done.clear()

    def _outcome(self, topic: Topic, state: OpenTopic, answer: TakenLedger | OffloadError) -> TopicState:
        if isinstance(answer, OffloadError):
            return self._failed(state, answer)
        try:
            return segments.of_offloaded(state, answer.parts, topic.info.ledgers, answer.at)
        except IntegrityError as error:
            return self._failed(state, error)

    def _failed(self, state: OpenTopic, error: OffloadError) -> TopicState:
        log.warning(
            "cannot copy what brokers offloaded topic=%s ledger=%d: %s",
            state.topic, state.open.start.ledger, error, extra={"see": "ledger-not-copied"},
        )  # fmt: skip
        self._context.metrics.failure(FailureKind.of(error), state.topic)
        if segments.must_abandon(error):
            state = segments.abandoned(state, self._context.new_uuid(), str(error))
            tell_of_abandoned(self._context, state.topic, str(error))
        return self._context.failed(state, error)


def _copied(context: Context, offloaded: OffloadedCopies, topic: Topic, step: Copy) -> TakenLedger:
    """Not in the driver's thread."""
    if context.stock is None:
        raise FatalError(
            f"{topic.name}: nobody knows where brokers have offloaded ledger {step.ledger} to: set "
            "lifecycle.stockBucket, or take the topic's ledgers over with --rewrite"
        )
    segment, info = step.state.open, topic.info
    last, uuid = info.ledgers.closed_with(step.ledger), offloaded.uuid(topic.name, step.ledger)
    if last is None or uuid is None:
        raise RetryableError(f"{topic.name}: brokers do not say any more that ledger {step.ledger} is offloaded")
    wanted = WantedCopy(topic.name, step.ledger, last, info.sizes[step.ledger][1], uuid)
    copier = LedgerCopier(context.store, context.stock, context.clock_ms)
    if segment.upload is None:
        raise IntegrityError(f"{topic.name}: segment {segment.uuid} is to be copied and has no upload")
    return copier.copy(wanted, segment.uuid, segment.upload, segment.cuts)
