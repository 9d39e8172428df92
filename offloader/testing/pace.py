"""Whether an application kept its pace: how long batches took, and when failing topics were planned."""

from __future__ import annotations

from dataclasses import dataclass, field

from offloader.model import TopicName


@dataclass
class PaceLog:
    """What one application did, told in the order of its doing. Times are in milliseconds.

    `longest_ms`: what a batch may take. `held`: until when topics wait; those that had failed before the application started, too.
    """

    longest_ms: int
    held: dict[TopicName, int] = field(default_factory=dict)
    batches: int = 0
    retries: int = 0
    violations: list[str] = field(default_factory=list)

    def batch(self, took_ms: int) -> None:
        """A batch has ended."""
        self.batches += 1
        if took_ms > self.longest_ms:
            self.violations.append(f"6: a batch took {took_ms} ms of {self.longest_ms}")

    def failed(self, topic: TopicName, until: int) -> None:
        """A topic has failed and waits."""
        self.held[topic] = until

    def planned(self, topic: TopicName, at: int) -> None:
        """A slice of the topic is in a plan."""
        until = self.held.pop(topic, None)
        if until is None:
            return
        self.retries += 1
        if at < until:
            self.violations.append(f"6: {topic} was planned {until - at} ms before its back-off was over")
