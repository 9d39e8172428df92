"""One subscription at work: what its dispatcher decides is done, and what its consumers say is told to it.

Everything is on the loop but for reads and the cursor, which worker threads have. Whatever is done with the cursor is
done in turn, and begins with the acknowledgements that have come until then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from offloader.cursors.core.ledger_acks import MOST_MESSAGES
from offloader.errors import FatalError, IntegrityError, OffloadError, OvertakenError
from offloader.gateway.core.dispatcher import Dispatcher
from offloader.gateway.core.events import (
    ActiveChanged,
    CloseConsumer,
    ConsumerKey,
    ConsumerState,
    Decision,
    Deliver,
    EndReached,
    EntryAck,
    Joining,
    ReadAgain,
    ReadBehind,
)
from offloader.gateway.server.ports import ConsumerPort
from offloader.gateway.status import SubscriptionStatus
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.acks import (
    BatchSizes,
    Ledgers,
    SubscriptionAcks,
    SubscriptionCursor,
    is_served,
    position_of,
)
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.gateway.values import ErrorCode, LookUpAgainError, RefusedError, SubscriptionType, client_text
from offloader.metadata.deletions import SegmentRange
from offloader.model import KIB, Place

log = logging.getLogger(__name__)

UNKNOWN_BYTES = 64 * KIB  # of acknowledgements of parts of batches that must be looked up: some 256 wait
FIRST_WAIT, LONGEST_WAIT = 0.2, 30.0  # seconds before a read that failed is tried again
LOOK_WITHIN = 1.0  # seconds that whoever looks at it waits for its turn
IDLE_FOR = 60.0  # seconds without a consumer, until a subscription is let go of
TOLD_FOR = 60.0  # seconds for which whoever subscribes hears why the topic cannot be read; then it is tried again
T = TypeVar("T")


class ServedSubscription:
    """`ended`: is told when the last consumer of one that nobody keeps has left, or another process owns it."""

    def __init__(
        self,
        name: str,
        entries: TopicEntries,
        cursor: SubscriptionCursor,
        dispatcher: Dispatcher,
        workers: Workers,
        *,
        sizes: BatchSizes,
        durable: bool,
        traffic: Traffic,
        ended: Callable[[ServedSubscription], None],
    ) -> None:
        self.name = name
        self.durable = durable
        self.is_deleted = False
        self.traffic = traffic
        self._entries = entries
        self._acks = SubscriptionAcks(cursor)
        self._sizes = sizes
        self._dispatcher = dispatcher
        self._workers = workers
        self._ended = ended
        self._consumers: dict[ConsumerKey, ConsumerPort] = {}
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._pending: list[EntryAck | tuple[Place, int]] = []  # acknowledgements that no thread has applied
        self._in_hand = 0  # how many of them a thread applies now
        self._unknown_bytes = 0  # of those that wait, about: parts of batches whose size must be looked up
        self._applying: asyncio.Task[None] | None = None
        self._may_be_over = False  # the topic, for its consumers
        self._flushing: asyncio.Future[None] | None = None
        self._resetting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._going = False
        self._waited = FIRST_WAIT
        self._sticky = self._shared = False
        self._type = ""
        self._trouble, self._trouble_until = "", 0.0
        self._over = False
        self._used_at = self._loop.time()
        self._changed_at: float | None = None  # None: everything is written
        self._looking: asyncio.Task[tuple[Place, int | None]] | None = None

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._pending or self._in_hand) or self._acks.cursor.changed

    @property
    def is_idle(self) -> bool:
        """Whether it had no consumer for a while, and everything is written."""
        return not self._consumers and not self.changed and self._loop.time() - self._used_at >= IDLE_FOR

    @property
    def waits_for_end(self) -> bool:
        """Whether its consumers were given everything, and know of no end."""
        return bool(self._consumers) and self._dispatcher.is_at_end and not self._dispatcher.is_over

    @property
    def unwritten_for(self) -> float:
        """Seconds since the oldest acknowledgement that is not written came; 0: all are."""
        return 0.0 if self._changed_at is None else self._loop.time() - self._changed_at

    async def seen(self) -> SubscriptionStatus:
        """What there is to tell, without a look into the store. The backlog where that takes no time."""
        mark_delete, backlog = await self._behind()
        states = [self._dispatcher.state(key) for key in self._consumers]
        return SubscriptionStatus(
            topic=str(self._entries.name),
            name=self.name,
            type=self._type if self._consumers else "",
            durable=self.durable,
            consumers=len(states),
            permits=sum(state.permits for state in states),
            unacknowledged=sum(state.unacknowledged for state in states),
            mark_delete=f"{mark_delete[0]}:{mark_delete[1]}",
            backlog=backlog,
            entries=self.traffic.entries,
            messages=self.traffic.messages,
            size=self.traffic.size,
            redelivered=self.traffic.redelivered,
            acknowledgements=self.traffic.acknowledgements,
        )

    async def _behind(self) -> tuple[Place, int | None]:
        unknown = self._acks.cursor.mark_delete.place, None
        if self._looking is None or self._looking.done():
            self._looking = self._loop.create_task(self._look_behind())
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), LOOK_WITHIN)
        except (TimeoutError, OffloadError):  # a thread waits for the store
            return unknown

    async def _look_behind(self) -> tuple[Place, int | None]:
        async with self._turn:
            return await self._workers.cursor(lambda: self._acks.behind(self._entries.ledgers()))

    # Consumers

    async def join(self, joining: Joining, consumer: ConsumerPort) -> None:
        """Raises RefusedError. One that seems to be in the way, and whose client is gone, makes room."""
        async with self._resetting:
            pass
        if self._loop.time() < self._trouble_until:
            raise RefusedError(ErrorCode.NOT_ALLOWED, self._trouble)
        self._check_open()
        self._tick()
        try:
            self._dispatcher.join(joining)
        except RefusedError as error:
            if error.code is not ErrorCode.CONSUMER_BUSY or joining.type is not SubscriptionType.EXCLUSIVE:
                raise
            for other in list(self._consumers.values()):
                if not await other.is_alive():
                    other.closed()
            self._check_open()
            self._tick()
            self._dispatcher.join(joining)
        self._type, self._shared = joining.type.name.title(), joining.type.is_shared
        self._sticky = joining.type is SubscriptionType.KEY_SHARED or joining.key_policy.ranges is not None
        self._consumers[joining.key] = consumer
        self._go()

    def _check_open(self) -> None:
        if self._over:
            raise LookUpAgainError(f"subscription {self.name} was closed")

    def leave(self, key: ConsumerKey) -> None:
        """What it has not acknowledged goes to others."""
        if self._consumers.pop(key, None) is None:
            return
        self._tick()
        self._dispatcher.leave(key)
        self._used_at = self._loop.time()
        self._go()
        if not self._consumers and not self.durable:
            self.end()

    def flow(self, key: ConsumerKey, permits: int) -> None:
        self._tick()
        self._dispatcher.flow(key, permits)
        self._go()

    def redeliver(self, key: ConsumerKey, places: Sequence[Place] | None, epoch: int | None) -> None:
        self._tick()
        self._dispatcher.redeliver(key, places, epoch)
        self._go()

    def state(self, key: ConsumerKey) -> ConsumerState:
        """Of one of its consumers."""
        return self._dispatcher.state(key)

    async def backlog(self) -> int | None:
        """With what was acknowledged until now; None: that takes a look into the store."""
        return (await self._in_turn(lambda: self._acks.behind(self._entries.ledgers())))[1]

    # Acknowledgements

    def acknowledge(self, acks: Sequence[EntryAck]) -> bool:
        """They are delivered no more from now on. Returns whether all are accepted: a set of messages that is larger
        than its batch is rejected, and so are parts of batches that were not delivered lately, beyond a bound."""
        accepted = [ack for ack in acks if self._accepts(ack)]
        self._dispatcher.acknowledge([ack for ack in accepted if self._is_known(ack)])
        self._pending.extend(accepted)
        self._acknowledged(len(accepted))
        self._go()
        return len(accepted) == len(acks)

    def acknowledge_up_to(self, place: Place, left: int) -> bool:
        """Ignored where consumers share the subscription. Returns whether it is accepted, as `acknowledge` does."""
        if self._shared:
            return True
        ack = EntryAck(place, left)
        if not self._accepts(ack):
            return False
        if self._is_known(ack):
            self._dispatcher.acknowledge_up_to(place, left)
        else:
            self._dispatcher.acknowledge_up_to((place[0], place[1] - 1))
        self._pending.append((place, left))
        self._acknowledged(1)
        self._go()
        return True

    def _is_known(self, ack: EntryAck) -> bool:
        """Whether it is known how many messages the entry has, where that matters. Else only the cursor is told."""
        return not ack.left or self._sizes.find(ack.place) is not None

    def _accepts(self, ack: EntryAck) -> bool:
        place, left = ack
        if not left:
            return True
        size = self._sizes.find(place)
        if size is not None:
            return left.bit_length() <= size
        if left.bit_length() > MOST_MESSAGES or self._unknown_bytes >= UNKNOWN_BYTES:
            return False
        self._unknown_bytes += ack.memory
        return True

    def _acknowledged(self, count: int) -> None:
        self.traffic.acknowledged(count)
        if self.durable and self._changed_at is None:
            self._changed_at = self._loop.time()
        self.look_for_end_soon()

    async def flush(self) -> None:
        """Returns when what was acknowledged before is durable. Those who wait at the same time wait for one write.
        Raises LookUpAgainError where it has ended before: nobody may be told that this is durable."""
        while self._flushing is not None:  # it may not have all of ours
            await asyncio.shield(self._flushing)
        if not self.changed:
            self._changed_at = None
            return
        self._check_open()
        self._flushing = self._loop.create_future()
        since, self._changed_at = self._changed_at, None  # what comes while it is written is not in it
        try:
            await self._in_turn(lambda: None)
            await self._workers.flush(self._acks.cursor.flush)
            self.traffic.wrote(failed=False)
        except asyncio.CancelledError:  # whoever waited has gone; it may be written, or not
            self._changed_at = since
            raise
        except OffloadError as error:
            self._changed_at = since
            self.traffic.wrote(failed=True)
            if isinstance(error, OvertakenError):
                log.info("gateway: %s of %s: %s", self.name, self._entries.name, error)
                self.end()
            raise
        finally:
            done, self._flushing = self._flushing, None
            done.set_result(None)

    async def mark_delete(self) -> Place:
        return await self._in_turn(lambda: self._advance(self._entries.absent_for_now(), self._entries.ledgers()))

    async def skip_deleted(self) -> None:
        """What is deleted by now counts as acknowledged."""
        await self._in_turn(lambda: self._acks.skip_what_is_deleted(self._entries))

    async def reset(self, mark_delete: Place, left: tuple[Place, int] | None = None) -> None:
        """All consumers must subscribe anew, behind this position. `left`: of its next entry. None of them joins before
        this returns: whoever seeks drops what it receives until it hears that it was done."""
        async with self._resetting:
            self._check_open()
            await self._reset(mark_delete, left)

    async def _reset(self, mark_delete: Place, left: tuple[Place, int] | None) -> None:
        begin = [] if left is None else [EntryAck(*left)]
        sizes = await self._sizes_of(begin)
        self._dispatcher.reset()  # first: what is acknowledged from now on is of before
        self._go()
        ledgers = self._entries.ledgers()

        def work() -> None:
            self._acks.cursor.begin_anew(position_of(mark_delete, ledgers))
            self._acks.apply(begin, ledgers, sizes)

        await self._in_turn(work)
        await self.flush()

    async def forget(self, key: ConsumerKey) -> None:
        """Its only consumer wants it no more: who subscribes with its name begins anew. Where it is not known whether
        that is written, nothing is acknowledged in it either: the consumer is closed, and finds what the store has.
        Raises RefusedError where others are there, too."""
        async with self._resetting:
            self._check_open()
            self._dispatcher.check_unsubscribe(key)
            try:
                await self._in_turn(self._acks.cursor.forget)
                await self.flush()
            except BaseException:
                self._loop.call_soon(self.end)  # behind the answer: until then clients do not hear that they are closed
                raise
            self.is_deleted = True
            self.leave(key)
            self.end()

    # The topic, and the time

    def grown(self) -> None:
        """The topic has more entries."""
        self._dispatcher.more()
        self._go()
        self.look_for_end_soon()

    def send_away(self) -> None:
        """All consumers look up again, and go on where they can be served. What they have acknowledged is kept until it
        is written, or another gateway has the subscription."""
        self._dispatcher.reset()
        self._go()

    def end(self) -> None:
        """Nothing more is done: all consumers are closed."""
        if self._over:
            return
        self._over = True
        self._dispatcher.reset()
        self._go()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        self._ended(self)

    def _tick(self) -> None:
        self._dispatcher.tick(int(time.time() * 1000))

    def _go(self) -> None:
        """Do what was decided, and what follows from that."""
        if self._going:
            return
        self._going = True
        try:
            touched: dict[ConsumerKey, ConsumerPort] = {}
            while decisions := self._dispatcher.decisions():
                for decision in decisions:
                    self._do(decision, touched)
                for consumer in touched.values():
                    consumer.pass_permits_on()
                touched.clear()
        finally:
            self._going = False
        self._wake_in_time()

    def _do(self, decision: Decision, touched: dict[ConsumerKey, ConsumerPort]) -> None:
        match decision:
            case Deliver(key):
                touched[key] = consumer = self._consumers[key]
                consumer.deliver(decision)
                self.traffic.delivered(decision)
            case ActiveChanged(key, is_active):
                if key in self._consumers:
                    self._consumers[key].active_changed(is_active=is_active)
            case EndReached(key):
                if key in self._consumers:
                    self._consumers[key].end_reached()
            case CloseConsumer(key):
                if key in self._consumers:
                    self._used_at = self._loop.time()
                    self._consumers.pop(key).closed()
            case ReadBehind():
                self._start(partial(self._read, decision))
            case ReadAgain():
                self._start(partial(self._read_again, decision))

    def _wake_in_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._dispatcher.wake_at_ms
        if at is not None and not self._over:
            self._timer = self._loop.call_later(max(at / 1000 - time.time(), 0), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.clock_was_set()

    def clock_was_set(self) -> None:
        """What waits for its time may be due now, or later than the timer says."""
        self._tick()
        self._go()

    # In threads

    async def _read(self, asked: ReadBehind) -> None:
        sticky, entries = self._sticky, self._entries
        try:
            after = asked.after if asked.after is not None else await self.mark_delete()
            absent, found = await self._workers.read(
                lambda: (
                    entries.absent_for_now(),
                    entries.read(after, asked.most_entries, asked.most_bytes, sticky=sticky),
                )
            )
            ledgers = entries.ledgers()
            left = await self._in_turn(lambda: self._acks.not_acknowledged(found, after, ledgers, absent))
        except OffloadError as error:
            await self._failed(asked.request, error)
            return
        self._waited = FIRST_WAIT
        self._tick()
        self._sizes.remember(left.entries)
        self._dispatcher.arrived(asked.request, left)
        self._go()
        if found.covered is None:
            self.look_for_end_soon()

    async def _read_again(self, asked: ReadAgain) -> None:
        sticky = self._sticky
        try:
            found = await self._workers.read(lambda: self._entries.again(asked.places, sticky=sticky))
            left = await self._in_turn(lambda: self._acks.left_of(found, self._entries.ledgers()))
        except OffloadError as error:
            await self._failed(asked.request, error)
            return
        self._waited = FIRST_WAIT
        self._tick()
        self._sizes.remember(left)
        self._dispatcher.arrived_again(asked.request, left)
        self._go()

    async def _failed(self, request: int, error: OffloadError) -> None:
        """What is damaged or lost stays so: its consumers hear it when they subscribe again."""
        if isinstance(error, IntegrityError):
            log.error("gateway: %s: %s", self._entries.name, error, extra={"see": "gateway-unreadable"})
            self._trouble, self._trouble_until = client_text(error), self._loop.time() + TOLD_FOR
            self._dispatcher.reset()
            self._dispatcher.failed(request)  # or whoever comes later would wait for it
            self._go()
            return
        log.warning("gateway: %s waits: %s", self._entries.name, error, extra={"see": "gateway-waits"})
        await asyncio.sleep(self._waited)
        self._waited = min(2 * self._waited, LONGEST_WAIT)
        self._dispatcher.failed(request)
        self._go()

    async def _in_turn(self, work: Callable[[], T]) -> T:
        await self._turn.acquire()
        return await asyncio.shield(self._loop.create_task(self._until_done(work)))

    async def _until_done(self, work: Callable[[], T]) -> T:
        """Whoever waits for it may go: nobody has the turn, and no acknowledgement comes back, as long as a thread has
        them."""
        acks, self._pending = self._pending, []
        unknown_bytes, self._unknown_bytes = self._unknown_bytes, 0
        self._in_hand = len(acks)
        try:
            sizes = await self._sizes_of(acks)
            return await self._workers.cursor(lambda: self._applied(acks, sizes, work))
        except BaseException:
            self._pending = acks + self._pending  # to apply them twice does no harm
            self._unknown_bytes += unknown_bytes
            raise
        finally:
            self._in_hand = 0
            self._turn.release()

    async def _sizes_of(self, acks: Iterable[EntryAck | tuple[Place, int]]) -> Mapping[Place, int]:
        """How many messages the batches have of which a part is acknowledged. Those that were not delivered lately are
        looked up."""
        sizes, unknown = dict[Place, int](), set[Place]()
        for place, left in acks:
            if left:
                if size := self._sizes.find(place):
                    sizes[place] = size
                else:
                    unknown.add(place)
        if unknown:
            sizes |= await self._workers.read(partial(self._looked_up, sorted(unknown)))
        return sizes

    def _looked_up(self, places: Sequence[Place]) -> dict[Place, int]:
        """What is not served, or cannot be read, has none: its batch is delivered again."""
        sizes = dict[Place, int]()
        for place in places:
            if not is_served(place, self._entries.ledgers()):
                continue
            try:
                sizes |= {entry.place: entry.messages for entry in self._entries.again([place])}
            except (IntegrityError, FatalError) as error:  # trying again helps nobody, and the others go on
                log.info("gateway: an acknowledgement of %s is passed over: %s", self._entries.name, error)
        return sizes

    def _applied(
        self, acks: Sequence[EntryAck | tuple[Place, int]], sizes: Mapping[Place, int], work: Callable[[], T]
    ) -> T:
        absent, ledgers = self._entries.absent_for_now(), self._entries.ledgers()
        for ack in acks:
            if isinstance(ack, EntryAck):
                self._acks.apply([ack], ledgers, sizes)
            else:
                self._acks.apply_up_to(*ack, ledgers, sizes)
        if acks:
            self._advance(absent, ledgers)
        return work()

    def _advance(self, absent: Sequence[SegmentRange], ledgers: Ledgers) -> Place:
        """`absent`: from before `ledgers` was asked for. A refresh may have come in between: it is asked once more."""
        return self._acks.advance(ledgers, (*absent, *self._entries.absent_for_now()))

    def look_for_end_soon(self) -> None:
        """All of a terminated topic may be acknowledged, and nobody has been told."""
        self._may_be_over = True
        if self._applying is None or self._applying.done():
            self._applying = self._start(self._apply)

    async def _apply(self) -> None:
        """Acknowledgements that have come, and what follows from having them all."""
        waits = FIRST_WAIT
        while self._pending or self._may_be_over:
            try:
                if self._pending:
                    await self._in_turn(lambda: None)
                else:
                    self._may_be_over = False
                    await self._look_for_end()
            except OffloadError as error:
                self._may_be_over = True
                log.warning("gateway: %s waits: %s", self._entries.name, error, extra={"see": "gateway-waits"})
                await asyncio.sleep(waits)
                waits = min(2 * waits, LONGEST_WAIT)

    async def _look_for_end(self) -> None:
        """Whether all of a terminated topic is acknowledged."""
        if not self.waits_for_end:
            return
        end = await self._workers.know(self._entries.end)
        if end.terminated and (end.last is None or await self.mark_delete() >= end.last):
            self._dispatcher.all_acknowledged()
            self._go()

    def _start(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except OffloadError as error:
            log.warning("gateway: %s waits: %s", self._entries.name, error, extra={"see": "gateway-waits"})
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (it is in the log)
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """What nobody foresaw ends the subscription: its consumers begin anew."""
        name = self._entries.name
        log.error("gateway: %s of %s", self.name, name, exc_info=error, extra={"see": "gateway-defect"})
        self.end()
