"""The binary protocol's side of the brokers as a process has it: pins and readers, which wait, break off and are
limited."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.errors import BrokerUnavailableError, TopicMovedError
from offloader.model import EntryRange, Gap, Position, TopicName
from offloader.ports.entry_source import EntryReader, Extent, RawEntry
from offloader.ports.pins import TopicEnd
from offloader.pulsar.broker_source import explain
from offloader.pulsar.rest import RestClient
from tests.fakes.cluster_clients import MemoryReader
from tests.world.brokers import OPERATION_TIMEOUT, Broker, Brokers
from tests.world.scheduler import MS, SECOND


class WorldPins:
    """`Pins` of one process."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._plain = brokers.cluster.pins()
        self._closed = False

    def open(self, topic: TopicName) -> TopicEnd:
        self._ask(topic)
        if self._closed:
            raise BrokerUnavailableError("the connections were closed")
        there = self._brokers.cluster.mark_delete(topic) is not None if self._brokers.cluster.exists(topic) else False
        end = self._plain.open(topic)
        if not there:
            self._brokers.subscribed(topic)
        return end

    def holds(self, topic: TopicName) -> bool:
        """What this process knows by itself."""
        return self._plain.holds(topic)

    def groups(self, topics: list[TopicName]) -> list[list[TopicName]]:
        """Those of one broker together."""
        owners: dict[str, list[TopicName]] = {}
        for topic in topics:
            owners.setdefault(self._owner(topic).host, []).append(topic)
        return list(owners.values())

    def ends(self, topics: list[TopicName]) -> dict[TopicName, TopicEnd | Exception]:
        """Those that answer have answered soon; for the others one waits, for all of them at once."""
        brokers = self._brokers
        if not topics:
            return {}
        owners = {topic: self._owner(topic) for topic in topics}
        brokers.travel(*brokers.all)
        found: dict[TopicName, TopicEnd | Exception] = {}
        for topic, owner in owners.items():
            if owner.up and not owner.hangs:
                found |= self._plain.ends([topic])
        silent = [owner for owner in owners.values() if owner.hangs]
        if silent:
            brokers.scheduler.sleep(OPERATION_TIMEOUT)
        return found | {
            t: BrokerUnavailableError(f"{o.host} did not answer") for t, o in owners.items() if t not in found
        }

    def take_disconnected(self) -> list[TopicName]:
        return self._plain.take_disconnected()

    def acknowledge(self, topic: TopicName, position: Position) -> None:
        self._ask(topic)
        self._plain.acknowledge(topic, position)
        self._brokers.travel(self._owner(topic))

    def release(self, topic: TopicName) -> None:
        self._ask(topic)
        self._plain.release(topic)
        self._brokers.travel(self._owner(topic))

    def drop(self, topic: TopicName) -> None:
        self._brokers.travel(self._owner(topic))
        self._plain.drop(topic)

    def close(self) -> None:
        self._brokers.travel(*self._brokers.all)
        self._closed = True
        self._plain.close()

    def connection_lost(self) -> None:
        """The brokers have noticed that this process is gone, or does not answer: others may have its subscriptions."""
        for topic in list(self._plain._held):
            self._plain._let_go(topic)

    def _owner(self, topic: TopicName) -> Broker:
        return self._brokers.owner(topic)

    def _ask(self, topic: TopicName) -> None:
        self._brokers.ask(self._owner(topic))


@dataclass
class Window:
    """What the readers of one process may hold, and the most that it ever was."""

    readers: int = 0
    most_readers: int = 0
    bytes: int = 0
    most_bytes: int = 0

    def opened(self, size: int) -> None:
        self.readers += 1
        self.bytes += size
        self.most_readers = max(self.most_readers, self.readers)
        self.most_bytes = max(self.most_bytes, self.bytes)

    def closed(self, size: int) -> None:
        self.readers -= 1
        self.bytes -= size


class WorldSource:
    """`EntrySource` of one process. `window` counts its readers."""

    def __init__(self, brokers: Brokers, rest: RestClient, window: Window) -> None:
        self._brokers = brokers
        self._rest = rest
        self._window = window

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> EntryReader:
        self._brokers.ask(self._brokers.owner(topic))
        plain = self._brokers.cluster.source.open(topic, ledger, entry, max_bytes=max_bytes, extent=extent)
        assert isinstance(plain, MemoryReader)
        return _Reader(self._brokers, topic, plain, max_bytes, self._window)

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        return explain(self._rest, topic, missing, limit=limit)


class _Reader:
    """Polls the cluster in virtual time. With a dispatch limit no more comes than time has earned."""

    def __init__(self, brokers: Brokers, topic: TopicName, plain: MemoryReader, max_bytes: int, window: Window) -> None:
        self._brokers = brokers
        self._scheduler = brokers.scheduler
        self._topic = topic
        self._plain = plain
        self._max_bytes = max_bytes
        self._window = window
        self._broker = brokers.owner(topic)
        self._earned_at = self._scheduler.now
        self._earned = 0.0
        window.opened(max_bytes)

    def read(self, timeout: float) -> list[RawEntry]:
        until = self._scheduler.now + int(timeout * SECOND)
        self._brokers.travel(self._broker)
        while True:
            found = self._arrived()
            if found or self._scheduler.now >= until:
                return found
            self._scheduler.sleep(min(50 * MS, until - self._scheduler.now))

    def close(self) -> None:
        self._window.closed(self._max_bytes)

    def _arrived(self) -> list[RawEntry]:
        if self._broker.hangs:
            return []
        if not self._broker.up or self._brokers.owner(self._topic) is not self._broker:
            raise TopicMovedError(f"{self._topic} moved")
        rate = self._brokers.bytes_per_second.get(self._topic)
        if rate is None:
            self._plain._max_bytes = self._max_bytes
            return self._counted(self._plain.read(0))
        now = self._scheduler.now
        self._earned = min(self._earned + (now - self._earned_at) / SECOND * rate, float(rate))
        self._earned_at = now
        if self._earned <= 0:
            return []
        self._plain._max_bytes = int(self._earned) + 1
        found = self._plain.read(0)
        self._earned -= sum(len(entry.data) for entry in found)
        return self._counted(found)

    def _counted(self, found: list[RawEntry]) -> list[RawEntry]:
        self._brokers.dispatched[self._topic] += sum(len(entry.data) for entry in found)
        return found
