"""One step of a topic's bridge, and the record that says that it is done. Not in the driver's thread.

Each step can be repeated, also by another process, and then writes the same bytes under the same names: those are in
the record before the first byte. Whoever cannot append its record has been overtaken, and loads the log again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile

from offloader.bridge.core.rounds import (
    BridgedLedger,
    BridgeHead,
    BridgeRound,
    BridgeState,
    BridgeVerdict,
    UnbridgedLedger,
)
from offloader.bridge.core.schedule import BeginRound, BridgeWork, PassOffloaded
from offloader.bridge.core.swap import begun_offload
from offloader.bridge.core.swap_steps import SwapEnd, SwapOutcome
from offloader.bridge.driver.audit import BridgeRepairs
from offloader.bridge.driver.parts import BridgeParts
from offloader.bridge.swapping import StaleOrFine
from offloader.errors import FatalError, IntegrityError, OffloadError, RetryableError, VersionConflictError
from offloader.model import TopicName

log = logging.getLogger(__name__)

OFFLOAD_MS = 600_000  # so long brokers may offload a ledger before its topic's bridge counts as blocked
RECORDED_AFTER_MS = 300_000  # of building: as much is read back again by whoever follows a process that died


@dataclass(frozen=True)
class BridgeSteps:
    """`still_ours`: raises OvertakenError where another process owns the application by now. `repairs`: count the
    unloads of all."""

    parts: BridgeParts
    application: str
    clock_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    still_ours: Callable[[], None]
    repairs: BridgeRepairs
    _begun: dict[TopicName, tuple[int, int]] = field(default_factory=dict)  # a ledger that brokers offload, since when

    def load(self, topic: TopicName) -> BridgeHead:
        """What is recorded now. Raises DamagedRecordError, FormatVersionError."""
        return self.parts.log.load(topic)

    def begin(
        self, topic: TopicName, head: BridgeHead, incarnation: int, step: BeginRound, lengths: Mapping[int, int]
    ) -> BridgeHead:
        """Draw and record the names of a round's objects. It ends before what brokers have begun to offload. Raises
        FatalError where brokers would not keep, or read, what is made for them."""
        if refusal := self.parts.refusal(topic):
            raise FatalError(refusal)
        state, begun = _current(topic, head, incarnation), self.parts.swaps().begun(topic)
        spans = tuple(takewhile(lambda span: span.ledger not in begun, step.spans))
        if not spans:
            return self._record(head, self._blocked(state, step))
        self._begun.pop(topic, None)
        ledgers = tuple(
            BridgedLedger(span.ledger, span.last or 0, lengths.get(span.ledger, 0), self.new_uuid()) for span in spans
        )
        bucket = self.parts.bucket_of(topic)
        if refusal := self.parts.no_room(topic, ledgers, bucket):
            raise FatalError(refusal)
        return self._record(head, state.began(ledgers, bucket, self.application, self.clock_ms()))

    def passed(self, topic: TopicName, head: BridgeHead, incarnation: int, step: PassOffloaded) -> BridgeHead:
        """Record that brokers can read these by themselves: as their record says now, whatever was listed before. A
        former owner that still answers may mean a round that was withdrawn, whose objects are gone; and so may a list
        that is older than the end of that round."""
        self.still_ours()
        found = self.repairs.look(topic)
        if found is not StaleOrFine.FINE:
            why = "has loaded its record only now" if found is StaleOrFine.REPAIRED else "may not know its record"
            raise RetryableError(f"{topic}: the broker that says what it has offloaded {why}: it is asked again")
        contexts, ours = self.parts.swaps().contexts(topic) or {}, self.repairs.proven(topic, frozenset(step.ledgers))
        uuids = {ledger.uuid for finished in ours for ledger in finished.ledgers}
        for ledger in step.ledgers:
            if contexts.get(ledger) in (None, *uuids):
                raise RetryableError(f"{topic}: brokers have not offloaded ledger {ledger} by themselves: look again")
        log.info("bridge topic=%s: brokers have offloaded all up to %s by themselves", topic, step.up_to)
        return self._record(head, _current(topic, head, incarnation).passed(step.up_to))

    def go_on(self, topic: TopicName, head: BridgeHead, incarnation: int, work: BridgeWork) -> BridgeHead:
        """The next step of a round that is recorded. Raises OvertakenError."""
        state = head.state
        if work is BridgeWork.CLEAN and state is not None and state.leaving is not None:
            return self._clean(topic, head, state, state.leaving)
        if state is None or state.round is None:
            raise IntegrityError(f"{topic}: there is no bridge round to go on with")
        self.still_ours()
        match work:
            # That a round is over is recorded first, with what is to go: no record of Pulsar's can name it then.
            case BridgeWork.GONE:
                self._check_unnamed(topic, state.round)
                return self._record(head, state.gone())
            case BridgeWork.ANEW:
                self._check_unnamed(topic, state.round)
                return self._record(head, state.anew(incarnation))
            case BridgeWork.DROP:
                return self._record(head, state.dropped())
            case BridgeWork.BUILD:
                return self._build(topic, head, state, state.round)
            case BridgeWork.SWAP:
                return self._swap(topic, head, state, state.round)
            case BridgeWork.TAKE_BACK:
                return self._record(head, state.withdrawing("brokers refuse it, and nobody wants it any more"))
            case BridgeWork.WITHDRAW:
                return self._withdraw(topic, head, state, state.round)
            case BridgeWork.CLEAN:
                raise IntegrityError(f"{topic}: nothing of its bridge is to be taken away")

    def let_go(self, topic: TopicName, head: BridgeHead, ledger: UnbridgedLedger) -> BridgeHead:
        """Record that a ledger stays in the archive alone."""
        if head.state is None:
            raise IntegrityError(f"{topic}: nothing of its bridge is recorded")
        return self._record(head, head.state.letting_go(ledger))

    def _swap(self, topic: TopicName, head: BridgeHead, state: BridgeState, under_way: BridgeRound) -> BridgeHead:
        outcome = self.parts.swaps().bridge(topic, under_way, partial(self._is_ours, topic, head))
        self.repairs.unloads[topic] += outcome.unloads
        _mind(topic, outcome)
        if outcome.end is SwapEnd.BUILD:
            return self._build_again(topic, head, state, under_way, outcome)
        if outcome.end is not SwapEnd.PROVEN:
            return self._record(head, state.withdrawing(outcome.why))
        for each in outcome.evidence:
            log.debug("bridge topic=%s: %s", topic, each)
        after = state.proven(self.clock_ms(), outcome.left_out.keys(), outcome.to_come, outcome.why, outcome.closed)
        return self._record(head, after)

    def _build_again(
        self, topic: TopicName, head: BridgeHead, state: BridgeState, under_way: BridgeRound, outcome: SwapOutcome
    ) -> BridgeHead:
        """Under their names. Where that is impossible the round is taken back, if there is anything to go back to."""
        log.info("bridge topic=%s: %s: it is built again", topic, outcome.why)
        built, why = list[BridgedLedger](), ""
        for ledger in outcome.broken:
            answer = self.parts.builds().build(topic, ledger, under_way.bucket)
            if isinstance(answer, UnbridgedLedger):
                why = answer.why
                break
            built.append(answer)
        if not why:
            return self._record(head, state.rebuilt(built))
        why = f"{outcome.why}, and cannot be built again: {why}"
        if outcome.deleted and not under_way.repairs:
            raise FatalError(f"{topic}: {why}")
        return self._record(head, state.withdrawing(why))

    def _blocked(self, state: BridgeState, step: BeginRound) -> BridgeState:
        """By brokers that offload its first ledger, again and again perhaps, unless they have not been at it for long,
        as far as we have seen."""
        first = step.spans[0]
        why, now = begun_offload(first.ledger), self.clock_ms()
        ledger, since = self._begun.get(state.topic, (-1, now))
        if ledger != first.ledger:
            self._begun[state.topic] = first.ledger, (since := now)
        if 0 <= now - since < OFFLOAD_MS:
            raise RetryableError(f"{state.topic}: {why}")
        verdict, generation = BridgeVerdict.OFFLOADING, step.generation
        return state.blocked_by(
            UnbridgedLedger(first.ledger, first.last or 0, verdict, why, at=now, generation=generation)
        )

    def _is_ours(self, topic: TopicName, head: BridgeHead) -> bool:
        """Whether the log still ends where we know it to. Raises OvertakenError."""
        self.still_ours()
        return self.parts.log.load(topic).slot == head.slot

    def _build(self, topic: TopicName, head: BridgeHead, state: BridgeState, under_way: BridgeRound) -> BridgeHead:
        built, refused = self._built(topic, under_way)
        if refused is None and len(built) < len(under_way.ledgers):
            return self._record(head, state.so_far(built))
        if built or refused is None:
            return self._record(head, state.built(built))
        return self._record(head, state.blocked_by(replace(refused, at=self.clock_ms())))

    def _check_unnamed(self, topic: TopicName, under_way: BridgeRound) -> None:
        """Brokers delete a topic's record with it, and what that names. Raises RetryableError where there is one that
        names the round's objects: the topic is not gone yet, or it was never another one."""
        named = set((self.parts.swaps().contexts(topic) or {}).values())
        if not named.isdisjoint(ledger.uuid for ledger in under_way.ledgers):
            raise RetryableError(
                f"{topic} counts as deleted, and Pulsar's record still names what is bridged: it is looked at again"
            )

    def _built(
        self, topic: TopicName, under_way: BridgeRound
    ) -> tuple[tuple[BridgedLedger, ...], UnbridgedLedger | None]:
        """As many as can be built, and what is in the way. What fails is tried again; what was built until then, or
        for some minutes, is recorded first: nobody reads it back again."""
        builds, built, began = self.parts.builds(), list[BridgedLedger](), self.clock_ms()
        for ledger in under_way.ledgers:
            try:
                answer = builds.build(topic, ledger, under_way.bucket)
            except OffloadError:
                if tuple(built) == under_way.ledgers[: len(built)]:
                    raise
                break
            if isinstance(answer, UnbridgedLedger):
                return tuple(built), answer
            built.append(answer)
            if not 0 <= self.clock_ms() - began < RECORDED_AFTER_MS:
                break
        return tuple(built), None

    def _withdraw(self, topic: TopicName, head: BridgeHead, state: BridgeState, under_way: BridgeRound) -> BridgeHead:
        """Its objects are to go, but for those whose ledgers brokers have nowhere else by now."""
        outcome = self.parts.swaps().withdraw(topic, under_way, partial(self._is_ours, topic, head))
        self.repairs.unloads[topic] += outcome.unloads
        _mind(topic, outcome)
        if outcome.end is not SwapEnd.WITHDRAWN:
            raise RetryableError(f"{topic}: its round cannot be withdrawn yet: {outcome.why}")
        return self._record(head, state.withdrawn(self.clock_ms(), outcome.kept, outcome.closed))

    def _clean(self, topic: TopicName, head: BridgeHead, state: BridgeState, leaving: BridgeRound) -> BridgeHead:
        """As often as it takes: the log forgets the names once nothing is there under them."""
        self.still_ours()
        log.info("bridge topic=%s: objects of %d ledgers are taken away again", topic, len(leaving.ledgers))
        self.parts.builds().discard(leaving.bucket, leaving.ledgers)
        return self._record(head, state.cleaned())

    def _record(self, head: BridgeHead, state: BridgeState) -> BridgeHead:
        return self.parts.log.append(head, state)


def _current(topic: TopicName, head: BridgeHead, incarnation: int) -> BridgeState:
    """What is recorded of the present incarnation; a former one's sums do not count for it."""
    if head.state is not None and head.state.incarnation == incarnation:
        return head.state
    return BridgeState(topic, incarnation, leaving=head.state.leaving if head.state is not None else None)


def _mind(topic: TopicName, outcome: SwapOutcome) -> None:
    """Raises what is no end: it is tried again, later; or somebody else has gone on; or an operator must help."""
    match outcome.end:
        case SwapEnd.LATER:
            raise RetryableError(f"{topic}: {outcome.why}")
        case SwapEnd.REFUSED:
            raise FatalError(f"{topic}: {outcome.why}")
        case SwapEnd.OVERTAKEN:
            raise VersionConflictError(f"{topic}: somebody else goes on with its bridge")
