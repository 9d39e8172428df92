"""The scripts of `pins.py` in the in-memory cluster."""

from __future__ import annotations

from offloader.model import Position, TopicName
from tests.fakes.cluster import MemoryCluster
from tests.world.pins import Told

T = TopicName.parse("public/default/t")


class InMemory:
    """One topic with a pin."""

    def __init__(self, full: int) -> None:
        self.cluster = MemoryCluster(entries_per_ledger=full)
        self.cluster.create(T)
        self.pins = self.cluster.pins()
        self.pins.open(T)
        self._seen: list[int] = []
        self.tell()

    def produce(self, count: int) -> None:
        for _ in range(count):
            self.cluster.produce(T, b"x")

    def acknowledge(self, ledger: int, entry: int) -> None:
        self.pins.acknowledge(T, Position(0, self._seen[ledger], entry))

    def skip_all(self) -> None:
        self.cluster.skip_all(T)

    def skip(self, count: int) -> None:
        self.cluster.skip(T, count)

    def reset(self, ledger: int, entry: int) -> None:
        self.cluster.reset(T, self._seen[ledger], entry)

    def expire(self) -> None:
        self.cluster.skip_all(T)

    def unload(self) -> None:
        self.cluster.unload(T)
        self.pins.ends([T])

    def trim(self) -> None:
        self.cluster.check_retention(T)

    def tell(self) -> Told:
        ledgers = [span.ledger for span in self.cluster.admin.topic_info(T).ledgers.spans]
        mark = self.cluster.mark_delete(T)
        assert mark is not None
        for found in sorted({*ledgers, mark[0]}):
            if found not in self._seen:
                self._seen.append(found)
        return Told(tuple(self._seen.index(x) for x in ledgers), (self._seen.index(mark[0]), mark[1]))
