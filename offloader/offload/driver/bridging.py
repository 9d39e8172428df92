"""The bridge as part of the application: when which topic is bridged further, and what is known of how far it is.

The driver's thread decides and posts, here as everywhere. A topic's log is loaded once; from then on only its own steps
change it, and a step that finds another record there has it loaded again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

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
    suspects,
)
from offloader.bridge.core.unload_rate import UnloadRate
from offloader.config.bridging import Bridge
from offloader.errors import FatalError, OffloadError, OutcomeUnknownError, OvertakenError, VersionConflictError
from offloader.metadata.bridges import BridgeHead, BridgeVerdict
from offloader.metadata.state import CatalogHead
from offloader.model import Position, TopicName
from offloader.offload.core.decisions import TopicRules
from offloader.offload.core.evidence import Being
from offloader.offload.driver import observed
from offloader.offload.driver.bridge_inspections import Inspections
from offloader.offload.driver.bridge_steps import BridgeParts, BridgeSteps
from offloader.offload.driver.bridge_told import hopeless, tell_blocked, tell_lags, tell_step
from offloader.offload.driver.context import Context
from offloader.offload.driver.facets import BridgeProgress
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind
from offloader.ports.admin import TopicInfo

log = logging.getLogger(__name__)

T = TypeVar("T")

OF_BRIDGES = (WorkKind.BRIDGE, WorkKind.BRIDGE_BUILD, WorkKind.BRIDGE_SWAP)
FIRST_RETRY_MS, LAST_RETRY_MS = 1_000, 600_000
WITHDRAWN_AGAIN_MS = 10_000  # a round that was withdrawn; twice as long each time
REPAIR_AGAIN_MS = 3_600_000  # after a repair that was taken back
MINDED_AGAIN_MS = 900_000
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
        self._rate = UnloadRate(settings.unloads_a_minute)
        self._minded: dict[TopicName, TopicInfo] = {}  # the list that was last looked through for what is missing
        self._minded_again: dict[TopicName, int] = {}  # when, where that could not be repaired
        self._resting: dict[TopicName, _Known] = {}  # topics for which nothing is to be done
        self._told_at = 0
        self._inspections = Inspections(context)
        ours = context.journal.check_not_overtaken
        self._steps = (
            None if parts is None else BridgeSteps(parts, context.application, context.clock_ms, context.new_uuid, ours)
        )

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
        if self._steps is None or not topic.bridge_view.wanted:
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
        if not stale and not gone and self._mind(topic, steps, now):
            return None
        rules = replace(rules, urgent=rules.urgent or topic.bridge.hurries)
        step = next_step(topic.bridge_view, rules, now)
        if isinstance(step, BridgeRest) or (stale and isinstance(step, BeginRound | PassOffloaded)):
            if step is BridgeRest.NOTHING and not stale and not gone and self._is_minded(topic):
                self._resting[topic.name] = _Known(topic.bridge, topic.info, topic.catalog, topic.rules)
            return None
        state = topic.bridge_view.current
        return _Due(isinstance(step, BeginRound), state.swapped_at if state else 0, str(topic.name), topic, step)

    def _follow(self, topic: Topic, *, hurries: bool | None = None) -> None:
        """What the journal says of the topic. Whoever lets go of one that was not handed over waits for no brokers."""
        journaled, bridge = self._context.journal.topics.get(topic.name), topic.bridge
        handed_over = journaled is not None and journaled.handed_over
        given_up = journaled is not None and journaled.releasing is not None and not handed_over
        hurries = handed_over and (bridge.hurries if hurries is None else hurries)
        if (given_up, handed_over, hurries) != (bridge.given_up, bridge.handed_over, bridge.hurries):
            topic.bridge = replace(bridge, given_up=given_up, handed_over=handed_over, hurries=hurries)

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
        again = topic.bridge.in_vain > 0
        unloads = isinstance(step, PassOffloaded) or (isinstance(step, BridgeWork) and step.unloads)
        if head is None or (unloads and not self._rate.take(now, again=again)):
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
        swapped = partial(self._swapped, topic, now, then, again=again)
        self._context.work.post(kind, name, call, swapped if unloads else then)

    def _mind(self, topic: Topic, steps: BridgeSteps, now: int) -> bool:
        """Look for ledgers that brokers were proven to read, and do not say so any more: once for each list, also while
        a round is under way. Whether that is asked for now."""
        head = topic.bridge.head
        if head is None or self._is_minded(topic) or now < self._minded_again.get(topic.name, 0):
            return False
        found = suspects(topic.bridge_view) - topic.bridge.sound
        if found and not self._rate.take(now, again=True):
            return False
        self._minded[topic.name] = topic.info
        if found:
            call = partial(steps.repair, topic.name, head, found, wanted=topic.bridge_view.wanted)
            then = partial(self._swapped, topic, now, partial(self._repaired, topic), again=True)
            self._context.work.post(WorkKind.BRIDGE_SWAP, topic.name, call, then)
        return bool(found)

    def _is_minded(self, topic: Topic) -> bool:
        return self._minded.get(topic.name) is topic.info

    # What came of it

    def _loaded(self, topic: Topic, answer: BridgeHead | OffloadError) -> None:
        if isinstance(answer, OffloadError):
            self._failed(topic, "load", answer)
            return
        topic.bridge = replace(topic.bridge, head=answer, error="", retry_at=0)
        if answer.state is not None:  # whoever was at it before us may have changed what was listed since
            self._look_again(topic)
            topic.bridge = replace(topic.bridge, changed_at=self._context.clock_ms())
        state = topic.bridge_view.current
        if state is not None and state.blocked is not None:
            tell_blocked(state)

    def _swapped(self, topic: Topic, began: int, then: Callable[[T], None], answer: T, *, again: bool) -> None:
        """What its broker says of it is another thing now."""
        now, made = self._context.clock_ms(), self._steps.unloads.pop(topic.name, 0) if self._steps else 0
        self._rate.made(began, now, made, again=again)
        self._context.metrics.bridge_swapped((now - began) / 1000)
        self._look_again(topic)
        topic.bridge = replace(topic.bridge, changed_at=now)
        then(answer)

    def _taken(self, topic: Topic, step: BridgeStep, before: BridgeHead, answer: BridgeHead | OffloadError) -> None:
        now = self._context.clock_ms()
        if isinstance(answer, OffloadError):
            self._failed(topic, step.value if isinstance(step, BridgeWork) else "record", answer)
            refused = step is BridgeWork.SWAP and isinstance(answer, FatalError)
            topic.bridge = replace(topic.bridge, refused=refused)
            return
        bridge = replace(topic.bridge, head=answer, error="", in_vain=0, refused=False, retry_at=0)
        over = before.state.round if before.state is not None else None
        if step is BridgeWork.WITHDRAW and over is not None and over.repairs:  # each try takes it from brokers' clients
            bridge = replace(bridge, error=over.why)
            self._mind_later(topic, REPAIR_AGAIN_MS)
        elif step is BridgeWork.WITHDRAW and answer.state is not None:
            again = now + min(WITHDRAWN_AGAIN_MS << min(answer.state.in_vain - 1, 12), LAST_RETRY_MS)
            bridge = replace(bridge, withdrawn=bridge.withdrawn + 1, retry_at=again)
        elif answer.state is not None and answer.state.finished is not None:
            bridge = replace(bridge, withdrawn=0)
        topic.bridge = bridge
        if answer.state is not None:
            tell_step(self._context.metrics, before.state, answer.state)

    def _repaired(self, topic: Topic, answer: tuple[BridgeHead, frozenset[int]] | OffloadError) -> None:
        if isinstance(answer, OffloadError):
            self._mind_later(topic, MINDED_AGAIN_MS)
            self._context.metrics.bridge_repaired("failed")
            self._failed(topic, "repair", answer)
            return
        head, sound = answer
        if head is topic.bridge.head:  # else a round is to do it
            self._context.metrics.bridge_repaired("repaired")
        topic.bridge = replace(topic.bridge, head=head, sound=topic.bridge.sound | sound, error="", in_vain=0)

    def _mind_later(self, topic: Topic, delay: int) -> None:
        """Its rounds go on meanwhile."""
        self._minded.pop(topic.name, None)
        self._minded_again[topic.name] = self._context.clock_ms() + delay

    def _look_again(self, topic: Topic) -> None:
        """Its list is another one now."""
        observed.doubt(topic)
        observed.soon(topic)

    def _failed(self, topic: Topic, step: str, error: OffloadError) -> None:
        if isinstance(error, OvertakenError):
            raise error
        bridge = topic.bridge
        in_vain = bridge.in_vain + 1
        delay = min(FIRST_RETRY_MS << min(in_vain - 1, 12), LAST_RETRY_MS)
        known = None if isinstance(error, VersionConflictError | OutcomeUnknownError) else bridge.head
        again = self._context.clock_ms() + delay
        topic.bridge = replace(bridge, head=known, in_vain=in_vain, retry_at=again, error=str(error))
        self._context.metrics.bridge_failed(step)
        if str(error) != bridge.error:
            log.warning("bridge topic=%s waits (%s): %s", topic.name, step, error, extra={"see": "bridge-waits"})

    def _tell(self, topics: list[Topic]) -> None:
        """How far brokers' reading is behind."""
        names = {topic.name for topic in topics}
        self._minded = {name: info for name, info in self._minded.items() if name in names}
        self._minded_again = {name: at for name, at in self._minded_again.items() if name in names}
        self._resting = {name: known for name, known in self._resting.items() if name in names}
        tell_lags(self._context.metrics, topics)


def _is_active(topic: Topic) -> bool:
    """Whether it has a round that goes on. One that has failed, and waits to be tried again, holds up no others."""
    state = topic.bridge.head.state if topic.bridge.head else None
    return state is not None and state.round is not None and not topic.bridge.in_vain
