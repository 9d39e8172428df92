"""A topic of the world: entries of some messages each, in ledgers, with places that nobody can get; it grows."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from offloader.gateway.values import ServedEnd, ServedEntries, ServedEntry
from offloader.model import Place, TopicName
from tests.gateway.whole import WholeTopic

BEFORE_ALL = (-1, -1)

PER_LEDGER = 8


class WorldTopic:
    """`entries`: what is sealed by now."""

    def __init__(self, name: TopicName, random: Random) -> None:
        self.name = name
        self.entries: list[ServedEntry] = []
        self.end: Place = BEFORE_ALL  # the last place, which may be one that nobody can get
        self._random = random

    def grow(self, places: int) -> None:
        """By so many places."""
        for _ in range(places):
            ledger, entry = self.end if self.end != BEFORE_ALL else (10, -1)
            at = (ledger, entry + 1) if entry + 1 < PER_LEDGER else (ledger + 1, 0)
            self.end = at
            if self._random.random() < 0.9:
                messages = self._random.choice([1, 1, 1, 3])
                self.entries.append(ServedEntry(at, b"x" * 50, 0, messages, self._random.randint(1, 8)))

    @property
    def messages(self) -> set[tuple[Place, int]]:
        return {(entry.place, index) for entry in self.entries for index in range(entry.messages)}

    def opened(self) -> OpenTopic:
        return OpenTopic(self)


class OpenTopic(WholeTopic):
    """`TopicEntries`, as of a process's last refresh."""

    def __init__(self, topic: WorldTopic) -> None:
        self.name = topic.name
        self._topic = topic
        self._known: list[ServedEntry] = []
        self._end = BEFORE_ALL
        self.refresh()

    def read(self, after: Place, most_entries: int, most_bytes: int, *, sticky: bool = False) -> ServedEntries:
        found = [entry for entry in self._known if entry.place > after][: min(most_entries, 5)]
        if found and found[-1] is not self._known[-1]:
            return ServedEntries(found, found[-1].place)
        return ServedEntries(found, self._end if self._end > after else None)

    def again(self, places: Sequence[Place], *, sticky: bool = False) -> list[ServedEntry]:
        wanted = set(places)
        return [entry for entry in self._known if entry.place in wanted]

    def end(self) -> ServedEnd:
        return ServedEnd(self._known[-1].place, self._known[-1].messages) if self._known else ServedEnd(None)

    def refresh(self) -> bool:
        moved = self._end != self._topic.end
        self._known, self._end = list(self._topic.entries), self._topic.end
        return moved

    def before_time(self, published_ms: int) -> Place:
        return BEFORE_ALL

    def previous(self, place: Place) -> Place:
        return max((entry.place for entry in self._known if entry.place < place), default=BEFORE_ALL)

    def ledgers(self) -> Sequence[tuple[int, int, int]]:
        if self._end == BEFORE_ALL:
            return ()
        last, entry = self._end
        return [(0, ledger, PER_LEDGER - 1) for ledger in range(10, last)] + [(0, last, entry)]
