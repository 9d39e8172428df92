"""Every state that can be reached, breadth first: the shortest way to a violation is the first one found."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol


class System(Protocol):
    """What is explored. Of states that are the same but for names, `canonical` is the same."""

    def initial(self) -> list[Any]: ...

    def actions(self, state: Any) -> Iterator[tuple[Any, Any]]: ...

    def canonical(self, state: Any) -> Hashable: ...

    def violation(self, state: Any) -> str | None: ...


@dataclass
class Explored:
    """What came of it. `trace`: the actions that lead to the violation."""

    states: int = 0
    transitions: int = 0
    violation: str | None = None
    trace: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        steps = "".join(f"\n  {step}" for step in self.trace)
        return f"{self.states} states, {self.transitions} transitions: {self.violation or 'no violation'}{steps}"


def explore(system: System, limit: int = 10**9) -> Explored:
    """All of it, up to the first violation. Raises AssertionError beyond `limit` states."""
    origin: dict[Hashable, tuple[Hashable, Any] | None] = {}
    queue: deque[tuple[Hashable, Any]] = deque()
    for state in system.initial():
        key = system.canonical(state)
        if key not in origin:
            origin[key] = None
            queue.append((key, state))
    canonical, actions, violation = system.canonical, system.actions, system.violation
    transitions = 0
    while queue:
        key, state = queue.popleft()
        broken = violation(state)
        if broken is not None:
            return Explored(len(origin), transitions, broken, _trace(origin, key))
        for name, after in actions(state):
            transitions += 1
            seen = canonical(after)
            if seen not in origin:
                origin[seen] = (key, name)
                queue.append((seen, after))
        assert len(origin) <= limit, f"more than {limit} states"
    return Explored(len(origin), transitions)


def walk(system: System, rng: random.Random) -> Explored:
    """One walk, to its end or to a violation."""
    found = Explored()
    state = rng.choice(system.initial())
    while True:
        found.states += 1
        found.violation = system.violation(state)
        following = list(system.actions(state))
        found.transitions += len(following)
        if found.violation is not None or not following:
            return found
        name, state = rng.choice(following)
        found.trace.append(name)


def _trace(origin: dict[Hashable, tuple[Hashable, Any] | None], key: Hashable) -> list[Any]:
    names = []
    while (step := origin[key]) is not None:
        key, name = step
        names.append(name)
    return names[::-1]
