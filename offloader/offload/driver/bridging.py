"""The bridge as part of the application: when which topic is bridged further, and what is known of how far it is.

The driver's thread decides and posts, here as everywhere. A topic's log is loaded once; from then on only its own steps
change it, and a step that finds another record there has it loaded again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from offloader.bridge.core.schedule import (
    BeginRound,
    BridgeRest,
    BridgeRules,
    BridgeStep,
    BridgeWork,
    PassOffloaded,
    in_hours,
    is_bridged,
    next_step,
)
from offloader.config.bridging import Bridge
from offloader.errors import FatalError, OffloadError
from offloader.metadata.bridges import BridgeHead, BridgeVerdict
from offloader.metadata.state import CatalogHead
from offloader.model import Position, TopicName
from offloader.offload.core.decisions import TopicRules
from offloader.offload.core.evidence import Being
from offloader.offload.driver import bridge_progress
from offloader.offload.driver.bridge_inspections import Inspections
from offloader.offload.driver.bridge_minding import Minding, is_minded
from offloader.offload.driver.bridge_ports import BridgeParts
from offloader.offload.driver.bridge_repairs import BridgeRepairs
from offloader.offload.driver.bridge_steps import BridgeSteps
from offloader.offload.driver.bridge_told import hopeless, tell_blocked, tell_lags, tell_step
from offloader.offload.driver.bridge_unloading import Unloading
from offloader.offload.driver.context import Context
from offloader.offload.driver.facets import BridgeProgress
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind
from offloader.ports.admin import TopicInfo

OF_BRIDGES = (WorkKind.BRIDGE, WorkKind.BRIDGE_BUILD, WorkKind.BRIDGE_SWAP)
TOLD_EVERY_MS = 10_000


class _Due(NamedTuple):
    """Rounds that are under way go before others, then who was unloaded longest ago."""

    begins: bool
    swapped_at: int
    name: str
    topic: Topic
    step: BridgeStep


class _Known(NamedTuple):
    """All that a decision about a topic rests on, but for the time."""

    bridge: BridgeProgress
    info: TopicInfo
    catalog: CatalogHead
    rules: TopicRules

    def still(self, topic: Topic) -> bool:
        """Whether nothing of it has changed."""
        return (
            self.bridge is topic.bridge
            and self.info is topic.observed.info
            and self.catalog is topic.committed.catalog
            and self.rules is topic.rules
        )


class Bridging:
    """`parts`: None where no metadata service is configured: then nothing can be bridged. `urgent`: the application
    runs until it is caught up, and waits for no hour."""

    def __init__(self, context: Context, settings: Bridge, parts: BridgeParts | None, *, urgent: bool = False) -> None:
        self._context = context
        self._settings = settings
        self._urgent = urgent
        self._resting: dict[TopicName, _Known] = {}  # topics for which nothing is to be done
        self._told_at = 0
        self._inspections = Inspections(context)
        ours, unloads = context.journal.check_not_overtaken, Counter[TopicName]()
        self._unloading = Unloading(context, settings.unloads_a_minute, unloads)
        self._minding = Minding(context, self._unloading)
        self._steps: BridgeSteps | None = None
        if parts is not None:
            repairs = BridgeRepairs(parts, context.application, context.clock_ms, ours, unloads)
            self._steps = BridgeSteps(parts, context.application, context.clock_ms, context.new_uuid, ours, repairs)

    def look(self, topics: Iterable[Topic]) -> None:
        """Have everything done that is due, in the driver's thread: it only posts."""
        if self._steps is None:
            return
        now, everything = self._context.clock_ms(), list(topics)
        rules = self._rules(now)
        due = (self._due(topic, self._steps, rules, now) for topic in everything)
        active = sum(_is_active(topic) for topic in everything)
        for one in sorted((each for each in due if each is not None), key=lambda each: each[:3]):
            if one.begins:
                active += 1
            if active <= self._settings.topics_at_once or not one.begins:
                self._start(one.topic, one.step, self._steps, now)
        self._inspections.look(everything, self._steps, self._is_free, now)
        if now - self._told_at >= TOLD_EVERY_MS:
            self._told_at = now
            self._tell(everything)

    def done(self, topic: Topic, goal: Position | None) -> bool:
        """Whether brokers read every closed ledger up to there, as far as they are to. From any thread."""
        bridge, view = topic.bridge, topic.bridge_view
        if self._steps is None:
            return not view.wanted
        fresh = bridge.head is not None and topic.observed.listed_at >= bridge.changed_at
        return fresh and is_bridged(view, goal)

    @property
    def refusal(self) -> str:
        """Why no topic can be handed over to brokers; empty: each can."""
        no_records = "set pulsar.metadataServiceUri: what brokers can read is recorded in ZooKeeper"
        return no_records if self._steps is None else ""

    def handed_over(self, topic: Topic, end: Position | None) -> str | None:
        """What is in the way of letting brokers alone read the topic up to `end`. Empty: nothing: they read every
        closed ledger up to there where it is handed over, and no round is under way; None: it is being done. In the
        driver's thread."""
        self._follow(topic, hurries=True)
        if not self._is_free(topic):
            return None
        why = "" if self.done(topic, end) else self.refusal or hopeless(topic) or None
        if why is not None:
            self._follow(topic, hurries=False)
        return why

    def is_out_of_the_way(self, topic: Topic) -> bool:
        """Whether a topic that retires can be let go of."""
        return self.handed_over(topic, topic.retire_at) == ""

    def let_go(self, topic: Topic, ledger: int, by: str, then: Callable[[OffloadError | None], None]) -> str | None:
        """Have a ledger that cannot be bridged let go of; `then` hears whether that failed. Returns why not, empty
        where it is being done, None where it has to wait."""
        head, state = topic.bridge.head, topic.bridge_view.current
        if self._steps is None or not topic.bridge_wanted:
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
        resting = self._resting.get(topic.name)
        if resting is not None and resting.still(topic):
            return None
        self._resting.pop(topic.name, None)
        gone = topic.gone is Being.DELETED  # it is not let go of before its round is over
        if self._is_busy(topic) or self._loads(topic, steps, now) or not (topic.readable or gone):
            return None
        stale = topic.observed.listed_at < topic.bridge.changed_at or bool(topic.poll.error)
        if not stale and not gone and self._minding.look(topic, steps.repairs, now):
            return None
        rules = replace(rules, urgent=rules.urgent or topic.bridge.hurries)
        step = next_step(topic.bridge_view, rules, now)
        if isinstance(step, BridgeRest) or (stale and isinstance(step, BeginRound | PassOffloaded)):
            if step is BridgeRest.NOTHING and not stale and not gone and is_minded(topic):
                self._resting[topic.name] = _Known(topic.bridge, topic.info, topic.catalog, topic.rules)
            return None
        state = topic.bridge_view.current
        return _Due(isinstance(step, BeginRound), state.swapped_at if state else 0, str(topic.name), topic, step)

    def _follow(self, topic: Topic, *, hurries: bool | None = None) -> None:
        bridge_progress.follow(topic, self._context.journal.topics.get(topic.name), hurries=hurries)

    def _is_free(self, topic: Topic) -> bool:
        return topic.readable and not self._is_busy(topic)

    def _is_busy(self, topic: Topic) -> bool:
        return any(self._context.work.has(kind, topic.name) for kind in OF_BRIDGES)

    def _loads(self, topic: Topic, steps: BridgeSteps, now: int) -> bool:
        """Whether its log has to be loaded first."""
        bridge = topic.bridge
        if bridge.head is None and now >= bridge.retry_at:
            call, then = partial(steps.load, topic.name), partial(self._loaded, topic)
            self._context.work.post(WorkKind.BRIDGE, topic.name, call, then)
        return bridge.head is None

    def _start(self, topic: Topic, step: BridgeStep, steps: BridgeSteps, now: int) -> None:
        head, name, incarnation = topic.bridge.head, topic.name, topic.incarnation
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
            self._unloading.post(topic, call, then, now, again=topic.bridge.in_vain > 0)
        else:
            self._context.work.post(kind, name, call, then)

    # What came of it

    def _loaded(self, topic: Topic, answer: BridgeHead | OffloadError) -> None:
        now = self._context.clock_ms()
        if isinstance(answer, OffloadError):
            bridge_progress.failed(topic, "load", answer, now, self._context.metrics)
            return
        bridge_progress.loaded(topic, answer, now)
        state = topic.bridge_view.current
        if state is not None and state.blocked is not None:
            tell_blocked(state)

    def _taken(self, topic: Topic, step: BridgeStep, before: BridgeHead, answer: BridgeHead | OffloadError) -> None:
        now = self._context.clock_ms()
        if isinstance(answer, OffloadError):
            name = step.value if isinstance(step, BridgeWork) else "record"
            bridge_progress.failed(topic, name, answer, now, self._context.metrics)
            bridge_progress.refused(topic, by_brokers=step is BridgeWork.SWAP and isinstance(answer, FatalError))
            return
        bridge_progress.went_on(topic, step, before, answer, now)
        over = before.state.round if before.state is not None else None
        if step is BridgeWork.WITHDRAW and over is not None and over.repairs:
            self._minding.taken_back(topic)
        if answer.state is not None:
            tell_step(self._context.metrics, before.state, answer.state)

    def _tell(self, topics: list[Topic]) -> None:
        """How far brokers' reading is behind."""
        names = {topic.name for topic in topics}
        self._resting = {name: known for name, known in self._resting.items() if name in names}
        tell_lags(self._context.metrics, topics)


def _is_active(topic: Topic) -> bool:
    """Whether it has a round that goes on. One that has failed, and waits to be tried again, holds up no others."""
    state = topic.bridge.head.state if topic.bridge.head else None
    return state is not None and state.round is not None and not topic.bridge.in_vain
