"""The uploads of segments' objects, beside the batches: begun, filled with copies of the ledgers that brokers have
offloaded, and aborted where they were given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from offloader.errors import FatalError, IntegrityError, OffloadError, OutcomeUnknownError, RetryableError
from offloader.format.index import OBJECT_META
from offloader.metadata import layout
from offloader.metadata.state import Abandoned, OpenTopic, TopicState
from offloader.migrate.ledger_copy import LedgerCopier, TakenLedger, WantedCopy
from offloader.model import SINGLE_PUT, FailureKind, Source, TopicName
from offloader.offload.core import segments
from offloader.offload.core.check import attempt
from offloader.offload.core.decisions import Copy
from offloader.offload.core.history import on_segment
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context
from offloader.offload.driver.receiving import tell_of_abandoned
from offloader.offload.driver.work import ADOPTIONS, WorkKind
from offloader.ports.admin import Admin

log = logging.getLogger(__name__)

KNOWN_MS = 60_000  # how long what brokers said of their copies counts


class UploadStarter:
    """Has uploads begun. What has begun meanwhile is journaled before a slice is planned for it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._begun: list[tuple[TopicName, str, str | OffloadError]] = []

    def start(self, topic: TopicName, uuids: Sequence[str]) -> None:
        """Have the uploads of segments' objects begun, unless some of the topic are."""
        opened = self._context.state(topic).open
        copied = opened.uuid if opened is not None and opened.source is Source.OFFLOADED else ""
        call = partial(self._begin, topic, uuids, copied)
        self._context.work.post(WorkKind.BEGIN, topic, call, partial(self._take, topic, uuids))

    def _begin(self, topic: TopicName, uuids: Sequence[str], copied: str) -> list[str | OffloadError]:
        """Not in the driver's thread. One that fails keeps none of the others."""
        begin = partial(self._context.store.begin, meta=OBJECT_META)
        return [attempt(partial(begin, layout.data_key(topic, uuid), copies=uuid == copied)) for uuid in uuids]

    def _take(self, topic: TopicName, uuids: Sequence[str], answers: list[str | OffloadError] | OffloadError) -> None:
        each = [answers] * len(uuids) if isinstance(answers, OffloadError) else answers
        self._begun += [(topic, uuid, answer) for uuid, answer in zip(uuids, each, strict=True)]

    def collect(self) -> None:
        """Journal all uploads that have begun meanwhile, in one record."""
        states: dict[TopicName, TopicState] = {}
        for topic, uuid, answer in self._begun:
            states[topic] = self._uploading(states.get(topic) or self._context.state(topic), uuid, answer)
        self._context.journal.record(states.values())
        self._begun.clear()

    def _uploading(self, state: TopicState, uuid: str, answer: str | OffloadError) -> TopicState:
        """The upload is for the object `uuid`: where no segment has that uuid any more, it is abandoned."""
        return on_segment(state, uuid, partial(self._uploading_one, uuid, answer))

    def _uploading_one(self, uuid: str, answer: str | OffloadError, state: TopicState) -> TopicState:
        if not isinstance(answer, OffloadError):
            return segments.uploading(state, uuid, answer)
        log.warning("cannot begin an upload topic=%s: %s", state.topic, answer, extra={"see": "upload-refused"})
        if not segments.awaits_upload(state, uuid):
            return state
        if isinstance(answer, OutcomeUnknownError):
            state = segments.abandoned(state, self._context.new_uuid(), str(answer))
        return self._context.failed(state, answer)


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


class AbandonedUploads:
    """Has uploads aborted that must never be completed; one that cannot be aborted now is tried again later."""

    EVERY_MS = 5_000

    def __init__(self, context: Context) -> None:
        self._context = context
        self._again_at = 0

    def abort(self, now: int) -> None:
        """Have aborted what is due."""
        if now < self._again_at:
            return
        self._again_at = now + self.EVERY_MS
        for state in [s for s in self._context.journal.topics.values() if s.abandoned]:
            call = partial(self._ended, state.abandoned)
            self._context.work.post(WorkKind.ABORT, state.topic, call, partial(self._take, state.topic))

    def _ended(self, abandoned: tuple[Abandoned, ...]) -> frozenset[Abandoned]:
        """Those of which nothing is left to abort. An object that is already there is left alone: a scan reports it."""
        return frozenset(a for a in abandoned if a.upload in (None, SINGLE_PUT) or self._aborted(a.upload))

    def _aborted(self, upload: str) -> bool:
        try:
            self._context.store.abort(upload)
        except OffloadError as error:
            log.info("cannot abort the abandoned upload %s yet: %s", upload, error)
            return False
        return True

    def _take(self, topic: TopicName, ended: frozenset[Abandoned] | OffloadError) -> None:
        if isinstance(ended, OffloadError):
            log.info("cannot abort abandoned uploads of topic=%s yet: %s", topic, ended)
            return
        if any(self._context.work.has(kind, topic) for kind in ADOPTIONS):
            # Whoever adopts it journals, too, in another thread. We do not overwrite what that writes, and try again.
            return
        state = self._context.state(topic)
        self._context.record(replace(state, abandoned=tuple(a for a in state.abandoned if a not in ended)))
