"""Recovery with real bookies and real metadata: does what the state machine asks for, and tells it the answers.

One thread. Answers come in through a queue; a request that is not answered in time counts as *unknown*.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from offloader.bookkeeper.api import Bookies, LedgerMetadataStore
from offloader.bookkeeper.entry_codec import master_key
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.recovery.dangers import young_cookies
from offloader.bookkeeper.recovery.evidence import Evidence
from offloader.bookkeeper.recovery.machine import Aborted, Done, Looking, RecoveryRules, start, step
from offloader.bookkeeper.recovery.messages import (
    BookieRequest,
    Distrusted,
    Event,
    MetadataRead,
    MetadataUnsettled,
    MetadataWritten,
    ReadEntry,
    ReadLast,
    ReadMetadata,
    Request,
    WriteBack,
    WriteMetadata,
    answered,
    unanswered,
)
from offloader.bookkeeper.recovery.outcome import RecoveryOutcome
from offloader.errors import (
    BookieUnavailableError,
    MetadataUnavailableError,
    OutcomeUnknownError,
    VersionConflictError,
)

TIMEOUT = 10.0  # seconds

Suspects = Callable[[LedgerMetadata], Collection[str]]


@dataclass
class _Waiting:
    request: BookieRequest
    deadline: float
    future: Future[Any]


@dataclass
class Recoverer:
    """One recovery of one ledger. `turn` does the next thing; `inbox` wakes whoever waits for one.

    `suspects`: asked just before the ledger is closed, which bookies have lost their disks.
    """

    ledger: int
    store: LedgerMetadataStore
    bookies: Bookies
    rules: RecoveryRules = field(default_factory=RecoveryRules)
    timeout: float = TIMEOUT
    suspects: Suspects | None = None
    clock: Callable[[], float] = time.monotonic
    evidence: Evidence = field(default_factory=Evidence)
    inbox: SimpleQueue[int] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self._tokens = itertools.count()
        self._waiting: dict[int, _Waiting] = {}  # in the order of their deadlines
        self._asked_to_take: dict[str, Future[Any]] = {}  # of a dry run: one question to each bookie
        self._metadata: ReadMetadata | WriteMetadata | None = None
        self._unsettled: OutcomeUnknownError | None = None
        self.state, requests = start(self.rules)
        self._ask(requests)

    @property
    def over(self) -> bool:
        """Whether there is an outcome, and nothing is on its way any more: last copies are not cut off."""
        return self.state.over and not self._waiting

    @property
    def outcome(self) -> RecoveryOutcome:
        """Once `state.over`."""
        phase = self.state.phase
        assert isinstance(phase, Done | Aborted)
        versioned = self.state.versioned
        return RecoveryOutcome(self.ledger, phase, self.evidence, versioned.metadata if versioned else None)

    @property
    def busy(self) -> bool:
        """Whether `turn` has something to do at once."""
        return self._metadata is not None or not self.inbox.empty()

    @property
    def deadline(self) -> float | None:
        """When the next request is given up."""
        return next((waiting.deadline for waiting in self._waiting.values()), None)

    def turn(self) -> None:
        """Make one call to the metadata service, or hear one answer, or give up what was not answered in time.

        Raises LedgerNotFoundError, MetadataUnavailableError; OutcomeUnknownError where nobody knows what became of a
        write.
        """
        if self._metadata is not None and self.inbox.empty():  # what has come in is heard before anything is written
            request, self._metadata = self._metadata, None
            self._tell(self._read() if isinstance(request, ReadMetadata) else self._write(request))
            return
        try:
            waiting = self._waiting.pop(self.inbox.get_nowait(), None)
        except Empty:
            self._give_up()
        else:
            if waiting is not None:
                self._tell(answered(self.ledger, waiting.request, waiting.future, self._metadata_of_round))

    def run(self) -> RecoveryOutcome:
        """To its end. Raises as `turn`."""
        while not self.over:
            if not self.busy:
                self._wait()
            self.turn()
        return self.outcome

    def _wait(self) -> None:
        deadline = self.deadline
        assert deadline is not None, "nothing is under way"
        try:
            token = self.inbox.get(timeout=max(deadline - self.clock(), 0))
        except Empty:
            return
        self.inbox.put(token)

    def _tell(self, event: Event) -> None:
        self.evidence.record(event)
        self.state, requests = step(self.state, event)
        if isinstance(self.state.phase, Looking):
            self._drop(keep=())
            self.evidence.forget()
        elif self.state.over:
            self._metadata = None  # an answer may end it that comes just before the write
            if not self.rules.reading.dry:  # a dry run is there for its evidence
                self._drop(keep=(WriteBack,))
        self._ask(requests)

    def _drop(self, keep: tuple[type[BookieRequest], ...]) -> None:
        """Their answers do not matter any more."""
        dropped = [token for token, waiting in self._waiting.items() if not isinstance(waiting.request, keep)]
        for token in dropped:
            self._waiting.pop(token).future.cancel()

    def _give_up(self) -> None:
        now = self.clock()
        late = [token for token, waiting in self._waiting.items() if waiting.deadline <= now]
        for token in late:
            waiting = self._waiting.pop(token, None)
            if waiting is not None:
                if not isinstance(waiting.request, WriteBack):  # that one may still do some good
                    waiting.future.cancel()
                self._tell(unanswered(waiting.request, self.timeout))

    # Requests

    def _ask(self, requests: tuple[Request, ...]) -> None:
        for request in requests:
            if isinstance(request, ReadMetadata | WriteMetadata):
                self._metadata = request
            else:
                token = next(self._tokens)
                future = self._send(request)
                self._waiting[token] = _Waiting(request, self.clock() + self.timeout, future)
                future.add_done_callback(partial(self._arrived, token))

    def _arrived(self, token: int, _: Future[Any]) -> None:
        """Called by whichever thread has the answer."""
        self.inbox.put(token)

    def _send(self, request: BookieRequest) -> Future[Any]:
        key = master_key(self._metadata_of_round.password)
        match request:
            case ReadLast(bookie, fence=True):
                return self.bookies.fence(bookie, self.ledger, key)
            case ReadLast(bookie):
                return self.bookies.read_lac(bookie, self.ledger)
            case ReadEntry(bookie, entry, fence):
                return self.bookies.read(bookie, self.ledger, entry, fence=key if fence else None)
            case WriteBack(bookie, dry=True):
                return self._would_take(bookie)
            case WriteBack(bookie, held):
                return self.bookies.recovery_add(bookie, self.ledger, held.entry, held.stored, key)

    def _would_take(self, bookie: str) -> Future[Any]:
        """Succeeds for a bookie that is registered to take entries and answers, whatever it answers."""
        if bookie not in self.rules.writable:
            refused: Future[Any] = Future()
            refused.set_exception(BookieUnavailableError(f"{bookie}: is not registered to take entries"))
            return refused
        if bookie not in self._asked_to_take:
            self._asked_to_take[bookie] = self.bookies.read_lac(bookie, self.ledger)
        return self._asked_to_take[bookie]

    @property
    def _metadata_of_round(self) -> LedgerMetadata:
        assert self.state.versioned is not None
        return self.state.versioned.metadata

    def _read(self) -> Event:
        try:
            return MetadataRead(self.store.read(self.ledger))
        except MetadataUnavailableError as error:
            if self._unsettled is None:
                raise
            raise OutcomeUnknownError(
                f"ledger {self.ledger}: {self._unsettled}, and the metadata service does not say now ({error}); "
                "closing it again is safe, and tells"
            ) from error

    def _write(self, request: WriteMetadata) -> Event:
        self._unsettled = None
        if request.metadata.closed and self.suspects is not None:  # who was asked counts, not who is to hold it
            more = frozenset(self.suspects(self._metadata_of_round)) - self.state.rules.distrusted
            if more:
                return Distrusted(more)
        try:
            return MetadataWritten(self.store.write(self.ledger, request.metadata, request.version))
        except VersionConflictError as error:
            return MetadataUnsettled(str(error))
        except OutcomeUnknownError as error:
            self._unsettled = error
            return MetadataUnsettled(str(error))


def recover(
    ledger: int,
    store: LedgerMetadataStore,
    bookies: Bookies,
    rules: RecoveryRules | None = None,
    *,
    timeout: float = TIMEOUT,
    suspects: Suspects | None = None,
    choice: random.Random | None = None,
) -> RecoveryOutcome:
    """Close the ledger, whoever wrote it. `timeout`: seconds for each request to a bookie. Raises as `Recoverer.turn`.

    `suspects` None: those with a cookie younger than the ledger. `choice`: chooses among the bookies that take entries
    those that replace others.
    """
    if suspects is None:
        suspects = partial(young_cookies, store=store)
    rules = replace(rules or RecoveryRules(), writable=_writable(store, choice or random.SystemRandom()))
    return Recoverer(ledger, store, bookies, rules, timeout, suspects).run()


def _writable(store: LedgerMetadataStore, choice: random.Random) -> tuple[str, ...]:
    found = sorted(bookie for bookie, writable in store.available().items() if writable)
    return tuple(choice.sample(found, len(found)))
