"""One subscription of one topic, or of one of its partitions: who gets which entry, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from offloader.gateway.core.events import (
    DEFAULT_LIMITS,
    CloseConsumer,
    ConsumerKey,
    ConsumerState,
    Decision,
    Deliver,
    DispatchLimits,
    EndReached,
    EntryAck,
    Joining,
)
from offloader.gateway.core.key_shared import KeyShared
from offloader.gateway.core.reading import ReadAhead
from offloader.gateway.core.shared import Shared
from offloader.gateway.core.single_active import SingleActive
from offloader.gateway.core.waiting import Subscriber
from offloader.gateway.values import ErrorCode, RefusedError, ServedEntries, ServedEntry, SubscriptionType
from offloader.model import Place

END_AGAIN_MS = 15_000  # as brokers wait


class Dispatcher:
    """Events in; what is to be done comes from `decisions`, which must be asked after each event. Not thread-safe.

    The cursor is somebody else's: acknowledgements are given to both. A read that was decided must be carried out on a
    cursor that has all acknowledgements that were given here before. Events of consumers that are not there are
    ignored, but for acknowledgements. The time is told by `tick`: before other events, and at `wake_at_ms`."""

    def __init__(self, topic: str, *, partition: int = -1, limits: DispatchLimits = DEFAULT_LIMITS) -> None:
        self._topic, self._partition, self._limits = topic, partition, limits
        self._decisions: list[Decision] = []
        self._reading = ReadAhead(limits, self._decide)
        self._consumers: dict[ConsumerKey, Subscriber] = {}
        self._mode: SingleActive | Shared | KeyShared | None = None  # None: no consumer is there
        self._now_ms = 0
        self._at_end = False
        self._end_from_ms = 0  # when the next one may be told

    @property
    def consumers(self) -> Iterable[ConsumerKey]:
        """Those that are there."""
        return self._consumers.keys()

    @property
    def wake_at_ms(self) -> int | None:
        """When `tick` has something to do; None: it has not."""
        at = [self._end_from_ms] if self._at_end and self._unaware() else []
        if self._mode is not None and self._mode.wake_at_ms is not None:
            at.append(self._mode.wake_at_ms)
        return min(at, default=None)

    @property
    def is_at_end(self) -> bool:
        """Whether all that the topic has was read."""
        return self._reading.is_at_end

    @property
    def is_over(self) -> bool:
        """Whether consumers were told that nothing comes any more."""
        return self._at_end

    def state(self, key: ConsumerKey) -> ConsumerState:
        """Of a consumer that may be gone."""
        consumer = self._consumers.get(key)
        if consumer is None:
            return ConsumerState()
        return ConsumerState(consumer.permits, consumer.unacknowledged, consumer.blocked)

    def decisions(self) -> list[Decision]:
        """Those since the last call, in order."""
        found = self._decisions.copy()
        self._decisions.clear()
        return found

    # Consumers

    def join(self, joining: Joining) -> None:
        """A consumer that is there already is left as it is. Raises RefusedError, then has changed nothing."""
        if joining.key in self._consumers:
            return
        for other in self._consumers.values():  # any of them: they were compatible
            check_compatible(other.joining, joining)
            break
        mode = self._mode or self._new_mode(joining)
        consumer = Subscriber(joining)
        mode.join(consumer)
        self._consumers[joining.key], self._mode = consumer, mode
        mode.go_on()

    def leave(self, key: ConsumerKey) -> None:
        """The type is free again once all have left, and all that was not acknowledged is delivered anew."""
        consumer = self._consumers.pop(key, None)
        if consumer is None or self._mode is None:
            return
        if self._consumers:
            self._mode.leave(consumer)
            self._mode.go_on()
        else:
            self._forget_all()

    def check_unsubscribe(self, key: ConsumerKey) -> None:
        """Raises RefusedError where others are there, too."""
        consumer = self._consumers.get(key)
        if consumer is None:
            raise RefusedError(ErrorCode.METADATA, "Subscriber not found")
        if self._mode is None or not self._mode.may_unsubscribe(consumer):
            raise RefusedError(ErrorCode.METADATA, "Unconnected or shared consumer attempting to unsubscribe")

    def flow(self, key: ConsumerKey, permits: int) -> None:
        """It takes so many messages more."""
        consumer = self._consumers.get(key)
        if consumer is not None and self._mode is not None and permits > 0:
            consumer.permits += permits
            consumer.has_asked = True
            self._tell_end()
            self._mode.flow(consumer)
            self._mode.go_on()

    def redeliver(self, key: ConsumerKey, places: Sequence[Place] | None = None, epoch: int | None = None) -> None:
        """Entries that it was given and has not acknowledged; `places` None: all of them."""
        consumer = self._consumers.get(key)
        if consumer is not None and self._mode is not None:
            self._mode.redeliver(consumer, places, epoch)
            self._mode.go_on()

    # Acknowledgements

    def acknowledge(self, acknowledged: Iterable[EntryAck]) -> None:
        """Entries, or parts of them, whoever has them and wherever they are: they are not delivered any more."""
        if self._mode is not None:
            self._mode.acknowledge(acknowledged)
            self._mode.go_on()

    def acknowledge_up_to(self, place: Place, left: int = 0) -> None:
        """All before a place, and of its own entry all but the messages in `left`. Ignored where consumers share."""
        if isinstance(self._mode, SingleActive):
            self._mode.acknowledge_up_to(place, left)
            self._mode.go_on()

    def all_acknowledged(self) -> None:
        """The topic is terminated, and nothing of it is left: all are told, and who joins later."""
        if not self._at_end:
            self._at_end = True
            self._end_from_ms = self._now_ms
            self._tell_end()

    def reset(self) -> None:
        """The cursor was set to another position: all consumers are closed, and must subscribe anew."""
        self._decisions.extend(CloseConsumer(key) for key in self._consumers)
        self._consumers.clear()
        self._forget_all()
        self._at_end = False

    def _tell_end(self) -> None:
        """Once to each that has asked for messages, and then to nobody for a while: clients that do not know this
        command close the connection, and are there again at once."""
        if not self._at_end or self._now_ms < self._end_from_ms:
            return
        for consumer in self._unaware():
            consumer.knows_end = True
            self._decisions.append(EndReached(consumer.key))
            self._end_from_ms = self._now_ms + END_AGAIN_MS

    def _unaware(self) -> list[Subscriber]:
        """Those that have asked for messages, and have not been told of the end."""
        return [one for one in self._consumers.values() if one.has_asked and not one.knows_end]

    # Reads

    def arrived(self, request: int, read: ServedEntries) -> None:
        """The answer of a `ReadBehind`."""
        entries = self._reading.came(request, read)
        if self._mode is not None:
            if entries:
                self._mode.came(entries)
            self._mode.go_on()

    def arrived_again(self, request: int, entries: Sequence[ServedEntry]) -> None:
        """The answer of a `ReadAgain`."""
        self._came_again(request, entries)

    def failed(self, request: int) -> None:
        """A read of either kind failed, and may be asked for again at once: so wait before telling."""
        self._reading.failed(request)
        self._came_again(request, None)

    def more(self) -> None:
        """The topic has new entries."""
        self._reading.grown()
        if self._mode is not None:
            self._mode.go_on()

    def tick(self, now_ms: int) -> None:
        """The time: ms since 1970. It may have been set back."""
        self._now_ms = now_ms
        self._end_from_ms = min(self._end_from_ms, now_ms + END_AGAIN_MS)
        self._tell_end()
        if self._mode is not None:
            self._mode.tick(self._now_ms)
            self._mode.go_on()

    def _decide(self, decision: Decision) -> None:
        last = self._decisions[-1] if self._decisions else None
        if not (isinstance(decision, Deliver) and isinstance(last, Deliver) and last.joined(decision)):
            self._decisions.append(decision)

    def _came_again(self, request: int, entries: Sequence[ServedEntry] | None) -> None:
        asked = self._reading.came_again(request)
        if self._mode is not None:
            if asked and not isinstance(self._mode, SingleActive):
                self._mode.came_again(asked, entries)
            self._mode.go_on()

    def _forget_all(self) -> None:
        self._mode = None
        self._reading.rewind()

    def _new_mode(self, joining: Joining) -> SingleActive | Shared | KeyShared:
        limits, reading, decide = self._limits, self._reading, self._decide
        mode: SingleActive | Shared | KeyShared
        if joining.type == SubscriptionType.SHARED:
            mode = Shared(limits, reading, decide)
        elif joining.type == SubscriptionType.KEY_SHARED:
            mode = KeyShared(joining.key_policy, limits, reading, decide)
        else:
            mode = SingleActive(joining.type, self._topic, self._partition, limits, reading, decide)
        mode.tick(self._now_ms)
        return mode


_NAMES = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}


def check_compatible(there: Joining, joining: Joining) -> None:
    """Whether a consumer may join one that is there: raises RefusedError, with the sentences of brokers, where not."""
    if joining.type != there.type:
        raise _different(
            f"Active subscription type of '{_NAMES[there.type]}' is different than the connecting consumer's type"
            f" '{_NAMES[joining.type]}'."
        )
    if there.type == SubscriptionType.EXCLUSIVE:
        raise RefusedError(ErrorCode.CONSUMER_BUSY, "Exclusive consumer is already connected")
    if there.type != SubscriptionType.KEY_SHARED:
        return
    ours, theirs = there.key_policy, joining.key_policy
    if ours.mode != theirs.mode:
        raise _different(
            f"Active subscription key_shared mode of '{ours.mode}' is different than the connecting consumer's"
            f" key_shared mode '{theirs.mode}'."
        )
    if ours.out_of_order and not theirs.out_of_order:
        raise _different(
            "Active subscription allows out of order delivery while the connecting consumer does not allow it."
        )
    if theirs.out_of_order and not ours.out_of_order:
        raise _different(
            "Active subscription does not allow out of order delivery while the connecting consumer allows it."
        )


def _different(text: str) -> RefusedError:
    return RefusedError(ErrorCode.CONSUMER_BUSY, f"Subscription is of different type. {text}")
