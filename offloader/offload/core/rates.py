"""Byte-rate limits of the application, of each namespace and of each topic: token buckets that may go into debt."""

from __future__ import annotations

from dataclasses import dataclass, field

from offloader.config.levels import Rates
from offloader.model import MIB, TopicName


@dataclass
class Bucket:
    """`rate` bytes a second; holds at most one second's worth, but never less than a usual part."""

    rate: int
    level: float = 0.0
    filled_at: int | None = None

    def fill(self, now: int) -> None:
        """Add what has accrued since the last call."""
        capacity = max(self.rate, 8 * MIB)
        if self.filled_at is None:
            self.level = capacity
        else:
            self.level = min(capacity, self.level + self.rate * (now - self.filled_at) / 1000)
        self.filled_at = now

    def positive_at(self, now: int) -> int:
        """When the bucket will not be in debt any more."""
        return now if self.level > 0 else now + int(-self.level * 1000 / self.rate) + 1


@dataclass
class RateLimits:
    """All buckets; a topic draws on up to three of them at once."""

    _buckets: dict[str, Bucket] = field(default_factory=dict)
    _of_topics: dict[TopicName, list[Bucket]] = field(default_factory=dict)

    def set(self, topic: TopicName, rates: Rates) -> None:
        """Put a topic under its limits (again)."""
        limits = (("", rates.application), (topic.namespace, rates.namespace), (str(topic), rates.topic))
        self._of_topics[topic] = []
        for key, rate in limits:
            if rate is not None:
                bucket = self._buckets.setdefault(key, Bucket(rate))
                bucket.rate = rate
                self._of_topics[topic].append(bucket)

    def allowance(self, topic: TopicName, now: int) -> tuple[int | None, int]:
        """(bytes the topic may read now, None where nothing limits it; when it may read again)."""
        buckets = self._of_topics.get(topic)
        if not buckets:
            return None, now
        for bucket in buckets:
            bucket.fill(now)
        return int(min(b.level for b in buckets)), max(b.positive_at(now) for b in buckets)

    def spent(self, topic: TopicName, size: int) -> None:
        """Draw what a slice has read."""
        for bucket in self._of_topics.get(topic, ()):
            bucket.level -= size
