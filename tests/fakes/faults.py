"""Failures on purpose, by call and topic: in a fixed order, or at random from a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from offloader.model import TopicName


@dataclass
class Fault:
    """One planned failure. `after` calls pass first; then `times` calls fail.

    With `effect` the call does its work before it fails: its answer is lost.
    """

    call: str
    error: Callable[[], Exception]
    topic: TopicName | None = None
    times: int = 1
    after: int = 0
    effect: bool = False

    def matches(self, call: str, topic: TopicName | None) -> bool:
        """Whether this fault concerns the call; a call that ends in `*` names a group."""
        same = call.startswith(self.call[:-1]) if self.call.endswith("*") else call == self.call
        return same and self.times > 0 and self.topic in (None, topic)


class Faults:
    """What goes wrong, and how often each call was made (`calls`, by call and topic)."""

    def __init__(self, rng: random.Random) -> None:
        self.calls: Counter[tuple[str, TopicName | None]] = Counter()
        self._rng = rng
        self._planned: list[Fault] = []
        self._random: list[tuple[float, str, tuple[Callable[[], Exception], ...]]] = []

    def add(
        self,
        call: str,
        error: Callable[[], Exception],
        *,
        topic: TopicName | None = None,
        times: int = 1,
        after: int = 0,
        effect: bool = False,
    ) -> Fault:
        """Make the next calls fail, for example `add("source.read", lambda: TopicMovedError("unloaded"))`."""
        fault = Fault(call, error, topic, times, after, effect)
        self._planned.append(fault)
        return fault

    def at_random(self, rate: float, call: str, errors: Iterable[Callable[[], Exception]]) -> None:
        """Let that share of the calls fail, before or after their effect."""
        self._random.append((rate, call, tuple(errors)))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._planned.clear()
        self._random.clear()

    def before(self, call: str, topic: TopicName | None = None) -> Exception | None:
        """Count the call and raise what was planned; returns an error to be raised once the effect has happened."""
        self.calls[call, topic] += 1
        error, effect = self._next(call, topic)
        if error is not None and not effect:
            raise error
        return error

    def count(self, call: str, topic: TopicName | None = None) -> int:
        """How often a call was made, for one topic or for all."""
        return sum(n for (c, t), n in self.calls.items() if c == call and topic in (None, t))

    def _next(self, call: str, topic: TopicName | None) -> tuple[Exception | None, bool]:
        for fault in self._planned:
            if not fault.matches(call, topic):
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            return fault.error(), fault.effect
        for rate, pattern, errors in self._random:
            if Fault(pattern, errors[0]).matches(call, topic) and self._rng.random() < rate:
                return self._rng.choice(errors)(), self._rng.random() < 0.5
        return None, False
