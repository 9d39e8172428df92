"""What the dispatcher of a subscription is told, and what it decides. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.gateway.values import ServedEntry, SubscriptionType
from offloader.model import MIB, Place

ConsumerKey = Hashable
"""What names a consumer among all connections: say, the connection and the consumer id."""


class DispatchLimits(NamedTuple):
    """Bounds of one subscription. Unacknowledged messages count where several consumers share; 0: no bound.

    `read_ahead_…`: entries in memory that nobody takes yet. `look_ahead_entries`: entries that wait, in memory or not,
    before reading stops: so far do keys that are free get past keys that are not. `delayed_entries`: those that wait
    for their time."""

    read_ahead_entries: int = 2_000
    read_ahead_bytes: int = 4 * MIB
    look_ahead_entries: int = 20_000
    delayed_entries: int = 1_000_000
    unacknowledged_of_consumer: int = 50_000
    unacknowledged_of_subscription: int = 200_000
    failover_delay_ms: int = 1_000


DEFAULT_LIMITS = DispatchLimits()
"""Those of brokers, where brokers have them."""


class KeyPolicy(NamedTuple):
    """How a consumer takes part in Key_Shared. `ranges`: hashes from the first to the last, both included (STICKY);
    None: as the consumers' names fall (AUTO_SPLIT). An Exclusive consumer with ranges gets only these keys."""

    ranges: Sequence[tuple[int, int]] | None = None
    out_of_order: bool = False

    @property
    def mode(self) -> str:
        """As people know it."""
        return "AUTO_SPLIT" if self.ranges is None else "STICKY"


class Joining(NamedTuple):
    """A consumer that subscribes. `epoch`: the one it gave; None: none."""

    key: ConsumerKey
    type: SubscriptionType
    name: str = ""
    priority: int = 0
    key_policy: KeyPolicy = KeyPolicy()
    epoch: int | None = None


class ConsumerState(NamedTuple):
    """How a consumer stands. `unacknowledged`: its messages, 0 where it does not share the subscription. `is_blocked`:
    it has too many of them."""

    permits: int = 0
    unacknowledged: int = 0
    is_blocked: bool = False


class EntryAck(NamedTuple):
    """An entry, and what of it is still to be delivered, as bits. 0: nothing, all of it is acknowledged. A client's
    word for how many messages the entry has is not believed."""

    place: Place
    left: int = 0

    @property
    def memory(self) -> int:
        """About how many bytes it takes."""
        return 250 + self.left.bit_length() // 7  # 30 bits of a number take 4 bytes


@dataclass(slots=True)
class Deliver:
    """Send entries in this order, with the ack set of each that is acknowledged in part. `messages`: that all of them
    have, and `size`: their bytes. `redeliveries`: of each of them. `epoch`: of the consumer, where it gave one."""

    consumer: ConsumerKey
    entries: list[ServedEntry]
    messages: int
    size: int
    redeliveries: int = 0
    epoch: int | None = None

    def joined(self, other: Deliver) -> bool:
        """Have what the other one has, too, where it goes to the same consumer in the same way."""
        if (self.consumer, self.redeliveries, self.epoch) != (other.consumer, other.redeliveries, other.epoch):
            return False
        self.entries += other.entries
        self.messages += other.messages
        self.size += other.size
        return True


class ActiveChanged(NamedTuple):
    """Tell a Failover consumer whether it is the one that gets messages."""

    consumer: ConsumerKey
    is_active: bool


class CloseConsumer(NamedTuple):
    """Tell a consumer that it must subscribe anew. The dispatcher has forgotten it."""

    consumer: ConsumerKey


class EndReached(NamedTuple):
    """Tell a consumer that nothing comes any more."""

    consumer: ConsumerKey


class ReadBehind(NamedTuple):
    """Read entries behind a place; None: behind the cursor's mark-delete position. Leave out what is acknowledged."""

    request: int
    after: Place | None
    most_entries: int
    most_bytes: int


class ReadAgain(NamedTuple):
    """Read these entries, which were read before. Leave out what is acknowledged, or cannot be delivered any more."""

    request: int
    places: Sequence[Place]


Decision = Deliver | ActiveChanged | CloseConsumer | EndReached | ReadBehind | ReadAgain
