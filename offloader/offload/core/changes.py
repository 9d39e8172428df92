"""Which topics a step of a round looks at: those of which something changed, and those whose time has come. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import TypeVar

from offloader.model import TopicName


class TopicChanges:
    """The names of topics of which something was replaced: a facet, the journal state, or the topic itself. Any thread
    may mark; all else is the driver's thread."""

    def __init__(self) -> None:
        self._marked: deque[TopicName] = deque()
        self._steps: list[TopicAgenda] = []
        self._polling: list[TopicAgenda] = []

    def mark(self, names: Iterable[TopicName]) -> None:
        """Have each step look at these topics once more."""
        self._marked.extend(names)

    def mark_polled(self, name: TopicName) -> None:
        """Have the step that polls look at the topic once more: a poll began, or ended and said nothing new. In the
        driver's thread."""
        for agenda in self._polling:
            agenda.add({name: None})

    def agenda(self, *, polls: bool = False) -> TopicAgenda:
        """The topics that one more step looks at: at first all of them. `polls`: it is the step that polls."""
        agenda = TopicAgenda(self)
        self._steps.append(agenda)
        if polls:
            self._polling.append(agenda)
        return agenda

    def hand_out(self) -> None:
        """Put all that was marked on the agenda of each step."""
        names = dict[TopicName, None]()
        while self._marked:
            names[self._marked.popleft()] = None
        for agenda in self._steps if names else ():
            agenda.add(names)


class DueTimes:
    """Topics, and when each is due, in milliseconds."""

    def __init__(self) -> None:
        self._due: dict[TopicName, int] = {}
        self._queued: dict[TopicName, int] = {}  # the entry of a topic in the heap that counts
        self._heap: list[tuple[int, TopicName]] = []

    def put(self, name: TopicName, at: int | None) -> None:
        """The topic is due then, and not before. None: never."""
        if at is None:
            self._due.pop(name, None)
            return
        self._due[name] = at
        queued = self._queued.get(name)
        if queued is None or at < queued:
            self._queued[name] = at
            heappush(self._heap, (at, name))

    def first(self) -> int | None:
        """When the first topic is due; None: none is."""
        while self._heap:
            at, name = self._heap[0]
            due = self._due.get(name)
            if self._queued.get(name) == at and due == at:
                return at
            heappop(self._heap)
            if self._queued.get(name) == at:
                del self._queued[name]
                if due is not None:
                    self.put(name, due)
        return None

    def take(self, now: int) -> list[TopicName]:
        """Remove the topics that are due, and return them, the first one first."""
        names = []
        while (at := self.first()) is not None and at <= now:
            name = heappop(self._heap)[1]
            del self._queued[name], self._due[name]
            names.append(name)
        return names


T = TypeVar("T")


class TopicAgenda:
    """The topics that one step of a round looks at. A topic stays on it until the step lets it rest; then it comes back
    once something of it changes, or its time has come. In the driver's thread."""

    def __init__(self, changes: TopicChanges) -> None:
        self._changes = changes
        self._names: dict[TopicName, None] | None = None  # in the order in which they came; None: all
        self._times = DueTimes()

    def add(self, names: Mapping[TopicName, None]) -> None:
        """Look at these topics, too."""
        if self._names is not None:
            self._names.update(names)

    def names(self, topics: Mapping[TopicName, T], now: int) -> list[TopicName]:
        """The topics to look at, also those that are not among `topics` any more."""
        self._changes.hand_out()
        if self._names is None:
            self._names = dict.fromkeys(topics)
        self._names.update(dict.fromkeys(self._times.take(now)))
        return list(self._names)

    def take(self, topics: Mapping[TopicName, T], now: int) -> list[T]:
        """The topics to look at. Each stays on the agenda until `rest` is called for it."""
        found = []
        for name in self.names(topics, now):
            topic = topics.get(name)
            if topic is None:
                self.rest(name)
            else:
                found.append(topic)
        return found

    def rest(self, name: TopicName, until: int | None = None) -> None:
        """There is nothing to do for the topic before that, unless something changes. None: at no time."""
        if self._names is not None:
            self._names.pop(name, None)
        self._times.put(name, until)
