"""Leads a topic's consumers to its brokers, once they have all that is archived. On the loop; brokers are in threads.

Each consumer is led by the address that it is told when it is closed. Clients that do not know this come back by a
lookup: the second time the lookup leads them. Who comes back once more stays here for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from offloader.cursors.durable import DurableCursor
from offloader.errors import OffloadError
from offloader.gateway.core.hand_over import MOST_TIMES, ComingBack
from offloader.gateway.live import Archived, LiveLook, LiveTopic
from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.ports import ConsumerPort, Leading
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.led import LedConsumer
from offloader.gateway.topics.moving import HandOverState, Outcome, SubscriptionMove
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.workers import Workers
from offloader.gateway.values import ErrorCode, RefusedError, ServedEnd
from offloader.model import Place

log = logging.getLogger(__name__)

HAND_OVERS = ("reader", "subscription", "refused", "taken back", "came back")
"""What is counted: readers and subscriptions that went to the brokers, subscriptions that these have one of, too, those
that are served here again, consumers that came back."""
QUIET = 1.0  # seconds without an acknowledgement: what is being worked on would be delivered again
PUT_OFF = 5.0  # seconds, before brokers are asked again what speaks against it: they tell nobody when that is over
REFUSED_FOR = 60.0  # seconds, before a subscription is tried again that brokers have one of, too


@dataclass
class Leader:
    """Of one topic. `new_token`: text that nobody else has. `counts`: what was led to the brokers, of all topics, and
    what was not: `HAND_OVERS`."""

    entries: TopicEntries
    live: LiveTopic
    workers: Workers
    new_token: Callable[[], str]
    counts: Counter[str] = field(default_factory=Counter)
    _back: ComingBack = field(default_factory=ComingBack)
    _moves: dict[str, asyncio.Task[Outcome]] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)

    @property
    def moves(self) -> int:
        """How many subscriptions are on their way."""
        return len(self._moves)

    def move_of(self, subscription: str) -> asyncio.Task[Outcome] | None:
        """Its hand-over that is under way."""
        return self._moves.get(subscription)

    async def look_round(self, subscriptions: Collection[ServedSubscription]) -> None:
        """Lead away who may go. Raises what the store and brokers raise, then has led nobody wrongly."""
        now = _now()
        self._not_before = {name: at for name, at in self._not_before.items() if at > now}
        ready = [one for one in subscriptions if one.may_be_led_away and one.name not in self._not_before]
        idle = [one for one in ready if one.quiet_for >= QUIET]
        if not idle:
            return
        self._not_before |= {one.name: now + PUT_OFF for one in idle}
        if await self.workers.know(self.entries.refresh):
            for one in subscriptions:
                one.grown()
            return
        archived = await self._archived()
        look = await self.workers.live(lambda: self.live.look(archived))
        failed: list[OffloadError] = []
        for one in sorted(idle, key=lambda one: one.durable):  # what takes longer comes last
            try:
                await self._consider(one, look)
            except OffloadError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    async def _consider(self, one: ServedSubscription, look: LiveLook) -> None:
        mark = await one.mark_delete()
        why = look.objection(mark, durable=one.durable)
        if why:
            log.debug("gateway: %s of %s stays: %s", one.name, self.entries.name, why)
        elif one.durable:
            await self._move(one)
        else:
            await self._lead(one, mark)

    async def _lead(self, one: ServedSubscription, mark: Place) -> None:
        """A reader's position is its client's."""
        consumer = one.attached[0]
        times = self._back.times(consumer.origin, _now())
        if times >= MOST_TIMES or (times and not consumer.is_settled):
            return
        address = await self.workers.live(self.live.address)
        # What it says meanwhile may move it back: a seek, say.
        if one.may_be_led_away and await one.mark_delete() >= mark and one.may_be_led_away:
            self._told(one.name, times)
            self.counts["reader"] += 1
            one.end(self._leading(consumer, address, times))
            del self._not_before[one.name]

    async def _move(self, one: ServedSubscription) -> None:
        move = SubscriptionMove(one.name, self.live, await self._archived())
        why = await self.workers.live(move.refusal)
        if why:
            self.counts["refused"] += 1
            self._not_before[one.name] = _now() + REFUSED_FOR
            log.warning("gateway: %s: %s", self.entries.name, why, extra={"see": "gateway-hand-over"})
        elif one.may_be_led_away:
            await self._start(one.name, self._begun(one, move))

    async def _begun(self, one: ServedSubscription, move: SubscriptionMove) -> Outcome:
        cursor = await one.freeze()
        assert isinstance(cursor, DurableCursor)
        number = int.from_bytes(hashlib.sha256(self.new_token().encode()).digest()[:7])
        await self.workers.flush(lambda: move.begin(cursor, number))
        return await self._gone_on(move, cursor)

    async def _gone_on(self, move: SubscriptionMove, cursor: DurableCursor) -> Outcome:
        was_done = (state := HandOverState.of(cursor.properties)) is not None and state.done_at is not None
        outcome, why = await self.workers.live(lambda: move.go_on(cursor, int(time.time() * 1000)))
        self.counts["subscription"] += outcome is Outcome.THERE and not was_done
        if why:
            self.counts["taken back"] += 1
            name = self.entries.name
            log.warning("gateway: %s: %s is served here: %s", name, move.name, why, extra={"see": "gateway-hand-over"})
        return outcome

    def _start(self, name: str, work: Coroutine[Any, Any, Outcome]) -> asyncio.Task[Outcome]:
        task = self._moves[name] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._ended(name, task))
        return task

    def _ended(self, name: str, task: asyncio.Task[Outcome]) -> None:
        """Also where nobody waits for it any more: whoever subscribes next goes on with it."""
        self._moves.pop(name, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("gateway: %s: the hand-over of %s waits: %s", self.entries.name, name, error)

    def go_on(self, subscription: str, cursor: DurableCursor) -> asyncio.Task[Outcome]:
        """With a hand-over that its log tells of."""
        return self._start(subscription, self._resumed(subscription, cursor))

    async def _resumed(self, subscription: str, cursor: DurableCursor) -> Outcome:
        return await self._gone_on(SubscriptionMove(subscription, self.live, await self._archived()), cursor)

    async def end_for(self, one: ServedSubscription) -> ServedEnd:
        """The last message that its consumer gets, here or where it goes on. Raises what brokers raise."""
        archived, end = await self._archived(), await self.workers.know(self.entries.end)
        if not one.goes_on_where_it_stands:
            return end
        return await self.workers.live(lambda: self.live.end(archived, end))

    async def _archived(self) -> Archived:
        return await self.workers.know(lambda: Archived.of(self.entries))

    async def led(self, subscription: str, consumer: ConsumerPort) -> LedConsumer:
        """A consumer of a subscription that is at the brokers: it subscribes here, and is then led there. Raises
        RefusedError where it does not get there."""
        times = self._back.times(consumer.origin, _now())
        if times >= MOST_TIMES or (times and not consumer.is_settled):
            raise RefusedError(ErrorCode.NOT_READY, f"{subscription} is at the brokers, and you came back from there")
        address = await self.workers.live(self.live.address)
        self._told(subscription, times)
        leading = self._leading(consumer, address, times)
        why = f"subscription {subscription} is at the brokers"
        return LedConsumer(self.entries.name.partition, why, partial(consumer.closed, leading))

    def _leading(self, consumer: ConsumerPort, address: Address, times: int) -> Leading:
        self._back.led(consumer.origin, _now())
        return Leading(self.entries.name, address, by_lookup=times > 0)

    def _told(self, subscription: str, times: int) -> None:
        if times + 1 == MOST_TIMES:
            self.counts["came back"] += 1
            log.warning(
                "gateway: %s: a consumer of %s came back from the brokers",
                self.entries.name,
                subscription,
                extra={"see": "gateway-hand-over"},
            )
        else:
            log.info("gateway: %s: %s goes on at the brokers", self.entries.name, subscription)


def not_here(subscription: str, cursor: DurableCursor) -> RefusedError | None:
    """Where nobody leads to brokers: why a subscription is not served; None: it is."""
    state = HandOverState.of(cursor.properties)
    if state is None:
        return None
    return RefusedError(
        ErrorCode.NOT_ALLOWED,
        f"{state.sentence(subscription)}; a gateway with `gateway.atEnd: handOver` leads there",
    )


async def outcome_of(task: asyncio.Task[Outcome]) -> Outcome:
    """Of a hand-over that others wait for, too. Raises RefusedError: not now."""
    try:
        return await asyncio.shield(task)
    except RefusedError:
        raise
    except OffloadError as error:
        raise RefusedError(ErrorCode.NOT_READY, f"it is being handed over to the brokers: {error}") from error


def _now() -> float:
    return asyncio.get_running_loop().time()
