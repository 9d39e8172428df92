"""The bridge as part of the application: when which topic is bridged further, and what is known of how far it is.

The driver's thread decides and posts, here as everywhere. A topic's log is loaded once; from then on only its own steps
change it, and a step that finds another record there has it loaded again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from offloader.bridge.core.rounds import BridgeHead, BridgeVerdict
from offloader.bridge.core.schedule import (
    BeginRound,
    BridgeRest,
    BridgeRules,
    BridgeStep,
    BridgeWork,
    PassOffloaded,
    in_hours,
    is_bridged,
    limit_of,
    next_step,
    not_bridged,
)
from offloader.bridge.driver import progress
from offloader.bridge.driver.audit import BridgeAuditor, BridgeRepairs, Inspections, is_audited
from offloader.bridge.driver.parts import BridgeParts
from offloader.bridge.driver.progress import Unloading, facets_of, is_wanted, progress_of
from offloader.bridge.driver.status import BridgeLags, bridge_word, hopeless, tell_blocked, tell_step
from offloader.bridge.driver.steps import BridgeSteps
from offloader.bridge.log import BridgeLog
from offloader.config.bridging import Bridge
from offloader.errors import FatalError, OffloadError
from offloader.model import Position, TopicName
from offloader.offload.core.evidence import Being
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import WorkKind
from offloader.offload.live.status import Trouble

log = logging.getLogger(__name__)

OF_BRIDGES = (WorkKind.BRIDGE, WorkKind.BRIDGE_BUILD, WorkKind.BRIDGE_SWAP)


class _Due(NamedTuple):
    """Rounds that are under way go before others, then who was unloaded longest ago."""

    begins: bool
    swapped_at: int
    name: str
    topic: Topic
    step: BridgeStep


class BridgeFeature:
    """A `TopicFeature`, and the `HandOver` of requests. `parts`: None where no metadata service is configured: then
    nothing can be bridged. `urgent`: the application runs until it is caught up, and waits for no hour."""

    def __init__(self, context: Context, settings: Bridge, parts: BridgeParts | None, *, urgent: bool = False) -> None:
        self._context = context
        self._settings = settings
        self._urgent = urgent
        self._agenda = context.changes.agenda()
        self._log = BridgeLog(context.store, context.new_uuid)
        self._lags = BridgeLags(context)
        self._inspections = Inspections(context)
        ours, unloads = context.journal.check_not_overtaken, Counter[TopicName]()
        self._unloading = Unloading(context, settings.unloads_a_minute, unloads)
        self._auditor = BridgeAuditor(context, self._unloading)
        self._steps: BridgeSteps | None = None
        if parts is not None:
            repairs = BridgeRepairs(parts, context.application, context.clock_ms, ours, unloads)
            self._steps = BridgeSteps(parts, context.application, context.clock_ms, context.new_uuid, ours, repairs)

    def look(self, topics: Mapping[TopicName, Topic]) -> None:
        """Have everything done that is due, in the driver's thread: it only posts."""
        if self._steps is None:
            return
        now = self._context.clock_ms()
        rules, awake = self._rules(now), self._agenda.take(topics, now)
        active = sum(_is_active(topic) for topic in awake)  # one that rests has no round
        due = [self._due(topic, self._steps, rules, now) for topic in awake]
        for one in sorted((each for each in due if each is not None), key=lambda each: each[:3]):
            if one.begins:
                active += 1
            if active <= self._settings.topics_at_once or not one.begins:
                self._start(one.topic, one.step, self._steps, now)
        self._inspections.look(topics.values(), self._steps.repairs, self._is_free, now)
        self._lags.tell(topics, now)

    def seen(self, topic: Topic) -> None:
        """An alarm where the subscription is past what brokers read from objects, and it was not moved by us: Pulsar
        may delete ledgers that only the archive has then. The archive misses nothing."""
        facets, mark, ours = facets_of(topic), topic.mark_delete, topic.pin.ours
        limit = limit_of(facets)
        if not facets.wanted:
            progress.stands_past(topic, "")
        if limit is None or ours is None or progress_of(topic).head is None:
            return
        past = mark > max(limit, ours)
        if past and mark.entry < 0:  # brokers step over the ends of ledgers by themselves
            first = next(not_bridged(facets), None)
            past = first is not None and mark.ledger > first.ledger
        alarm = (
            f"{topic.name}: the subscription stands at {mark}, and brokers read objects up to {limit} only: message "
            "TTL, a backlog quota with consumer_backlog_eviction, or somebody moved it; Pulsar may delete what is "
            "between, which the archive alone has then"
        )
        if past and progress_of(topic).past != alarm:
            log.error("%s", alarm, extra={"see": "pin-past-bridge"})
            self._context.metrics.bridge_failed("pin")
        progress.stands_past(topic, alarm if past else "")

    def limit(self, topic: Topic) -> Position | None:
        """As far as brokers read it from objects; nothing as long as that is not known."""
        if is_wanted(topic) and progress_of(topic).head is None:
            return Position(topic.incarnation, -1, -1)
        return limit_of(facets_of(topic))

    def needs_list(self, topic: Topic) -> bool:
        """A broker that has not loaded its record anew, or a record that somebody has changed, does not show by any
        new entry."""
        state = facets_of(topic).current
        return state is not None and state.up_to is not None

    def is_open(self, topic: Topic) -> bool:
        """Whether a record of Pulsar's may be rewritten, and its topic still to be unloaded; or objects are to go."""
        head = progress_of(topic).head
        if head is None:
            return topic.rules.broker_readable
        return head.state is not None and head.state.is_open

    def is_done(self, topic: Topic, goal: Position | None) -> bool:
        """Whether brokers read every closed ledger up to there, as far as they are to. From any thread."""
        bridge, facets = progress_of(topic), facets_of(topic)
        if self._steps is None:
            return not facets.wanted
        fresh = bridge.head is not None and topic.observed.listed_at >= bridge.changed_at
        return fresh and is_bridged(facets, goal)

    def finish(self, topic: Topic, end: Position | None) -> str | None:
        """What is in the way of letting brokers alone read the topic up to `end`. Empty: nothing: they read every
        closed ledger up to there where it is handed over, and no round is under way; None: it is being done."""
        self._follow(topic, hurries=True)
        if not self._is_free(topic):
            return None
        why = "" if self.is_done(topic, end) else self.refusal or hopeless(topic) or None
        if why is not None:
            self._follow(topic, hurries=False)
        return why

    def hopeless(self, topic: Topic) -> str:
        """See `TopicFeature`."""
        return hopeless(topic)

    def word(self, topic: Topic) -> str:
        """See `TopicFeature`."""
        return bridge_word(topic) if is_wanted(topic) else ""

    def troubles(self, topic: Topic) -> Iterator[Trouble]:
        """See `TopicFeature`."""
        bridge = progress_of(topic)
        if bridge.past:
            yield Trouble(bridge.past, "pin-past-bridge")
        if bridge.error:
            yield Trouble(bridge.error, "bridge-waits", attempts=bridge.in_vain, retry_at=bridge.retry_at)

    def has_open_record(self, name: TopicName) -> bool:
        """Whether a round of the topic is not over, or objects are still to go."""
        return self._log.is_open(name)

    def offloaded_by_us(self, name: TopicName) -> frozenset[int]:
        """The ledgers of finished rounds: brokers list them as offloaded also where the catalog is lost."""
        rounds = self._log.finished_rounds(name)
        return frozenset(each.ledger for state in rounds if state.finished for each in state.finished.ledgers)

    @property
    def refusal(self) -> str:
        """Why no topic can be handed over to brokers; empty: each can."""
        no_records = "set pulsar.metadataServiceUri: what brokers can read is recorded in ZooKeeper"
        return no_records if self._steps is None else ""

    def let_go(self, topic: Topic, ledger: int, by: str, then: Callable[[OffloadError | None], None]) -> str | None:
        """Have a ledger that cannot be bridged let go of; `then` hears whether that failed. Returns why not, empty
        where it is being done, None where it has to wait."""
        head, state = progress_of(topic).head, facets_of(topic).current
        if self._steps is None or not is_wanted(topic):
            return f"{topic.name} is not brokerReadable"
        if head is None or not self._is_free(topic) or (state is not None and state.round is not None):
            return None
        blocked = state.blocked if state is not None else None
        if blocked is None or blocked.ledger != ledger:
            why = "nothing is in its way" if blocked is None else f"what is in its way is ledger {blocked.ledger}"
            return f"ledger {ledger} of {topic.name} is not what its bridge waits for: {why}"
        gone = replace(blocked, verdict=BridgeVerdict.ARCHIVE_ONLY, by=by, at=self._context.clock_ms())

        def taken(answer: BridgeHead | OffloadError) -> None:
            self._taken(topic, BridgeRest.NOTHING, head, answer)
            then(answer if isinstance(answer, OffloadError) else None)

        self._context.work.post(WorkKind.BRIDGE, topic.name, partial(self._steps.let_go, topic.name, head, gone), taken)
        return ""

    # What is due

    def _rules(self, now: int) -> BridgeRules:
        settings = self._settings
        return BridgeRules(
            settings.min_interval_ms,
            settings.max_interval_ms,
            in_hours(settings.quiet_hours, now),
            settings.ledgers_at_once,
            self._urgent,
        )

    def _due(self, topic: Topic, steps: BridgeSteps, rules: BridgeRules, now: int) -> _Due | None:
        self._follow(topic)
        gone = topic.gone is Being.DELETED  # it is not let go of before its round is over
        if self._is_busy(topic) or self._loads(topic, steps, now) or not (topic.readable or gone):
            return None
        stale = topic.observed.listed_at < progress_of(topic).changed_at or bool(topic.poll.error)
        if not stale and not gone and self._auditor.look(topic, steps.repairs, now):
            return None
        rules = replace(rules, urgent=rules.urgent or progress_of(topic).hurries)
        step = next_step(facets_of(topic), rules, now)
        if isinstance(step, BridgeRest) or (stale and isinstance(step, BeginRound | PassOffloaded)):
            if step is BridgeRest.NOTHING and not stale and not gone and is_audited(topic):
                self._agenda.rest(topic.name)
            return None
        state = facets_of(topic).current
        return _Due(isinstance(step, BeginRound), state.swapped_at if state else 0, str(topic.name), topic, step)

    def _follow(self, topic: Topic, *, hurries: bool | None = None) -> None:
        progress.follow(topic, self._context.journal.topics.get(topic.name), hurries=hurries)

    def _is_free(self, topic: Topic) -> bool:
        return topic.readable and not self._is_busy(topic)

    def _is_busy(self, topic: Topic) -> bool:
        return any(self._context.work.has(kind, topic.name) for kind in OF_BRIDGES)

    def _loads(self, topic: Topic, steps: BridgeSteps, now: int) -> bool:
        """Whether its log has to be loaded first."""
        bridge = progress_of(topic)
        if bridge.head is None and now >= bridge.retry_at:
            call, then = partial(steps.load, topic.name), partial(self._loaded, topic)
            self._context.work.post(WorkKind.BRIDGE, topic.name, call, then)
        return bridge.head is None

    def _start(self, topic: Topic, step: BridgeStep, steps: BridgeSteps, now: int) -> None:
        head, name, incarnation = progress_of(topic).head, topic.name, topic.incarnation
        if head is None:
            return
        then = partial(self._taken, topic, step, head)
        call: Callable[[], BridgeHead]
        match step:
            case BeginRound():
                lengths = {span.ledger: topic.info.sizes.get(span.ledger, (0, 0))[1] for span in step.spans}
                call, kind = partial(steps.begin, name, head, incarnation, step, lengths), WorkKind.BRIDGE
            case PassOffloaded():
                call, kind = partial(steps.passed, name, head, incarnation, step), WorkKind.BRIDGE_SWAP
            case BridgeWork():
                call = partial(steps.go_on, name, head, incarnation, step)
                kind = WorkKind.BRIDGE_SWAP if step.unloads else WorkKind.BRIDGE_BUILD
            case _:
                return
        if kind is WorkKind.BRIDGE_SWAP:
            self._unloading.post(topic, call, then, now, again=progress_of(topic).in_vain > 0)
        else:
            self._context.work.post(kind, name, call, then)

    # What came of it

    def _loaded(self, topic: Topic, answer: BridgeHead | OffloadError) -> None:
        now = self._context.clock_ms()
        if isinstance(answer, OffloadError):
            progress.failed(topic, "load", answer, now, self._context.metrics)
            return
        progress.loaded(topic, answer, now)
        state = facets_of(topic).current
        if state is not None and state.blocked is not None:
            tell_blocked(state)

    def _taken(self, topic: Topic, step: BridgeStep, before: BridgeHead, answer: BridgeHead | OffloadError) -> None:
        now = self._context.clock_ms()
        if isinstance(answer, OffloadError):
            name = step.value if isinstance(step, BridgeWork) else "record"
            progress.failed(topic, name, answer, now, self._context.metrics)
            progress.refused(topic, by_brokers=step is BridgeWork.SWAP and isinstance(answer, FatalError))
            return
        progress.went_on(topic, step, before, answer, now)
        over = before.state.round if before.state is not None else None
        if step is BridgeWork.WITHDRAW and over is not None and over.repairs:
            self._auditor.taken_back(topic)
        if answer.state is not None:
            tell_step(self._context.metrics, before.state, answer.state)


def _is_active(topic: Topic) -> bool:
    """Whether it has a round that goes on. One that has failed, and waits to be tried again, holds up no others."""
    bridge = progress_of(topic)
    state = bridge.head.state if bridge.head else None
    return state is not None and state.round is not None and not bridge.in_vain
