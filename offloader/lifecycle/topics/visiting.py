"""Visits topics that nobody has loaded: has each loaded and trimmed at once, and unloaded again if nobody came. Few at
a time, and within a rate.

A broker that does not own the topic's bundle may come to own it. Who connects while we look who is there, and unload,
reconnects: clients do so by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from offloader.ahead import map_ahead
from offloader.bookkeeper.api import Bookies, LedgerMetadataStore
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.recovery.inspection import InspectionOptions, examine
from offloader.bookkeeper.recovery.ownership import objection
from offloader.errors import (
    AbsentError,
    AuthenticationFailedError,
    AuthorizationFailedError,
    FatalError,
    IntegrityError,
    OffloadError,
    OutcomeUnknownError,
    RetryableError,
)
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.node_reader import TopicNodeReader, UnreadableTopic
from offloader.lifecycle.topics.pace import VisitPace
from offloader.lifecycle.topics.unloaded import UnloadedTopic, look_at
from offloader.lifecycle.topics.visit_outcome import VisitEnd, VisitOutcome
from offloader.lifecycle.topics.visit_plan import VisitPlanner
from offloader.model import TopicName
from offloader.ports.admin import Admin
from offloader.state.topic import PulsarTopic

CloseTail = Callable[[TopicName, int], str]
"""Closes a topic's ledger that no broker can close. Returns what came of it, in words."""
STATISTICS_MS = 60_000  # as often brokers renew them


class TopicVisitor:
    """Thread safe. `close`: None: ledgers that a broker cannot close stay open."""

    def __init__(
        self,
        reader: TopicNodeReader,
        brokers: Admin,
        names: SubscriptionNames,
        clock_ms: Callable[[], int],
        close: CloseTail | None = None,
    ) -> None:
        self._reader = reader
        self._brokers = brokers
        self._names = names
        self._clock_ms = clock_ms
        self._close = close

    def visit(self, planned: UnloadedTopic, loaded: Mapping[str, str]) -> VisitOutcome:
        """`loaded`: by brokers' statistics, no older than those of the plan. Raises AuthenticationFailedError."""
        try:
            before = self._reader.read_again(planned.topic)
        except OffloadError as error:
            return VisitOutcome(planned, VisitEnd.UNANSWERED, why=str(error))
        if before is None:
            return VisitOutcome(planned, VisitEnd.GONE)
        if isinstance(before, UnreadableTopic):
            return VisitOutcome(planned, VisitEnd.REFUSED, why=before.why)
        if str(planned.topic) in loaded or before.list.version != planned.version:  # every load writes the list
            return VisitOutcome(planned, VisitEnd.LOADED)
        try:
            self._brokers.trim(planned.topic)
        except AbsentError as error:
            return VisitOutcome(planned, VisitEnd.GONE, why=str(error))
        except AuthorizationFailedError as error:
            return VisitOutcome(planned, VisitEnd.NOT_PERMITTED, why=str(error))
        except AuthenticationFailedError:
            raise
        except (RetryableError, OutcomeUnknownError, IntegrityError) as error:
            return self._after_no_answer(before, planned, error)
        except FatalError as error:
            return VisitOutcome(planned, VisitEnd.REFUSED, why=str(error))
        return self._leave(before, planned, VisitEnd.TRIMMED)

    def _after_no_answer(self, before: PulsarTopic, planned: UnloadedTopic, error: OffloadError) -> VisitOutcome:
        """The list shows whether some broker has loaded it: every load writes it. Whoever still works on it keeps it
        loaded, as after a client that went away."""
        try:
            after = self._reader.read_again(planned.topic)
        except OffloadError as unread:
            return VisitOutcome(planned, VisitEnd.UNCLEAR, left=_unsaid(unread), left_by_mistake=True, why=str(error))
        if isinstance(after, PulsarTopic) and after.list.version != before.list.version:
            return self._leave(before, planned, VisitEnd.UNCLEAR, str(error))
        why = str(error)
        if planned.open_ledger is not None and self._close is not None and after is not None:
            why += f"; {self._close(planned.topic, planned.open_ledger)}"
        return VisitOutcome(planned, VisitEnd.UNANSWERED, why=why)

    def _leave(self, before: PulsarTopic, planned: UnloadedTopic, end: VisitEnd, why: str = "") -> VisitOutcome:
        left, mistake = self._unload(planned.topic)
        try:
            after = self._reader.read_again(planned.topic)
        except OffloadError as error:
            unread = why or str(error)
            return VisitOutcome(planned, VisitEnd.UNCLEAR, left=left, left_by_mistake=mistake, why=unread)
        if not isinstance(after, PulsarTopic):
            return VisitOutcome(planned, VisitEnd.GONE if after is None else end, left=left, why=why)
        still = {one.ledger for one in after.list.ledgers}
        freed = sum(one.size for one in before.ledgers if one.ledger not in still)
        now = None if left else look_at(after, planned.retention, self._clock_ms(), self._names)
        return VisitOutcome(planned, end, freed, left, now, why, mistake)

    def _unload(self, topic: TopicName) -> tuple[str, bool]:
        """Why it stays loaded, and whether that is a mistake."""
        try:
            use = self._brokers.use(topic)
        except AbsentError:
            return "", False
        except OffloadError as error:
            return _unsaid(error), True
        if use.clients:
            return f"{use.clients} producers and consumers have come", False
        if use.replicators:
            return "it has something to replicate", False
        try:
            self._brokers.unload(topic)
        except AbsentError:
            return "", False
        except OffloadError as error:
            return f"it may not have been unloaded ({error})", True
        return "", False


def _unsaid(error: OffloadError) -> str:
    return f"who uses it cannot be asked ({error})"


class TailCloser:
    """A `CloseTail`: safely, as BookKeeper's own recovery does it. `loaded_by`: as `Admin.loaded_by`. Refuses where a
    broker may still write the ledger."""

    def __init__(
        self,
        store: LedgerMetadataStore,
        bookies: Bookies,
        loaded_by: Callable[[TopicName], str | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._bookies = bookies
        self._loaded_by = loaded_by
        self._clock_ms = clock_ms

    def __call__(self, topic: TopicName, ledger: int) -> str:
        """What fails is told, too: the topic has other data, and other topics wait."""
        try:
            metadata = self._store.read(ledger).metadata
            if metadata.closed:
                return f"ledger {ledger} is closed meanwhile"
            refused = objection(ledger, metadata, self._store, self._loaded_by, self._clock_ms())
            if refused:
                return f"not closed: {refused}"
            return examine(ledger, self._store, self._bookies, InspectionOptions(dry=False)).outcome.message
        except OffloadError as error:
            return f"ledger {ledger} of {topic} is not closed: {error}"


@dataclass(frozen=True)
class VisitClock:
    """Time, and how to let it pass (seconds)."""

    now_ms: Callable[[], int]
    sleep: Callable[[float], object]


@dataclass(frozen=True, slots=True)
class VisitRate:
    """As the configuration has them."""

    at_once: int
    a_minute: int


class VisitRound:
    """Makes many visits. One at a time makes rounds."""

    def __init__(self, visitor: TopicVisitor, brokers: Admin, clock: VisitClock, rate: VisitRate) -> None:
        self._visitor = visitor
        self._brokers = brokers
        self._clock = clock
        self._at_once = rate.at_once
        self._pace = VisitPace(rate.a_minute)
        self._loaded: Mapping[str, str] = {}
        self._asked_ms: int | None = None
        self._refused: set[str] = set()

    def visit(self, topics: Iterable[UnloadedTopic]) -> Iterator[VisitOutcome]:
        """In their order. In a namespace where one is not permitted, no other one is tried. Raises OffloadError."""
        self._refused.clear()
        with ThreadPoolExecutor(self._at_once, "visits") as pool:  # whatever happens, what was loaded is unloaded
            for outcome in map_ahead(pool, self._visit, self._paced(topics), self._at_once):
                if outcome.end is VisitEnd.NOT_PERMITTED:
                    self._refused.add(outcome.topic.namespace)
                yield outcome

    def _paced(self, topics: Iterable[UnloadedTopic]) -> Iterator[UnloadedTopic]:
        """Runs in the thread that takes the outcomes."""
        for topic in topics:
            if topic.topic.namespace not in self._refused:
                wait_ms = self._pace.wait_ms(self._clock.now_ms())
                if wait_ms > 0:
                    self._clock.sleep(wait_ms / 1000)
                self._look()
            yield topic

    def _look(self) -> None:
        now = self._clock.now_ms()
        if self._asked_ms is None or not 0 <= now - self._asked_ms < STATISTICS_MS:
            self._loaded = self._brokers.loaded_topics()
            self._asked_ms = now

    def _visit(self, topic: UnloadedTopic) -> VisitOutcome:
        if topic.topic.namespace in self._refused:
            why = f"a visit in {topic.topic.namespace} was not permitted: no other is tried there"
            return VisitOutcome(topic, VisitEnd.NOT_PERMITTED, why=why)
        return self._visitor.visit(topic, self._loaded)


@dataclass(frozen=True)
class VisitParts:
    """What planning and visiting are made of. `close`: ends what was opened for them."""

    reader: TopicNodeReader
    planner: VisitPlanner
    round: VisitRound
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class VisitPlaces:
    """What visits reach. `loaded_by`: as `Admin.loaded_by`. `enabled`: as `enabled_topics`."""

    tree: MetadataTree
    bookies: Bookies
    brokers: Admin
    loaded_by: Callable[[TopicName], str | None]
    names: SubscriptionNames
    enabled: Callable[[str], Callable[[TopicName], bool]]


def visit_parts(
    places: VisitPlaces, clock: VisitClock, rate: VisitRate, close: Callable[[], None] = lambda: None
) -> VisitParts:
    """Nothing is reached yet."""
    reader = TopicNodeReader(places.tree)
    closer = TailCloser(places.tree, places.bookies, places.loaded_by, clock.now_ms)
    visitor = TopicVisitor(reader, places.brokers, places.names, clock.now_ms, closer)
    planner = VisitPlanner(places.brokers, places.names, clock.now_ms, places.enabled)
    return VisitParts(reader, planner, VisitRound(visitor, places.brokers, clock, rate), close)
