"""What the driver's thread has others do: it posts work, takes results, and never waits.

Each kind of work has threads of its own: what hangs holds up no other kind. Of one topic, at most one piece of each
kind is under way. The driver's thread takes the results, and alone changes what is known of topics.

Errors outside our tree in the work for one topic are a defect of ours, or a peer that does what nobody foresaw: that
topic's trouble, never the application's end. `foreseen` is the one place where they are caught."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from offloader.errors import OffloadError, UnforeseenError
from offloader.offload.core.check import attempt

log = logging.getLogger(__name__)

T = TypeVar("T")


class WorkKind(StrEnum):
    """The kinds of work."""

    LOOK = "look"  # consumers' ends
    LEDGERS = "ledgers"  # ledger lists, by REST
    TAIL = "tail"  # what no broker delivers, by REST
    SUBSCRIBE = "subscribe"  # to what may be in the place of a topic that is in question
    INQUIRE = "inquire"  # what became of topics that do not answer as the ones that we know, by REST
    DISCOVER = "discover"
    ADOPT = "adopt"  # new topics and new incarnations
    ADOPT_AGAIN = "adopt-again"  # those whose broker had to be waited for: they hold no new ones
    TIMES = "times"  # when entries were published, where the borders of history depend on it
    BEGIN = "begin"  # uploads
    COPY = "copy"  # objects of brokers are copied, and the copies read
    SEAL = "seal"
    CATALOG = "catalog"  # losses and ends of ledgers are recorded, a catalog in trouble is loaded again
    ACKNOWLEDGE = "acknowledge"
    RELEASE = "release"  # subscriptions and claims are given up
    CLAIM = "claim"  # is written for another shard
    REQUEST = "request"  # of the command line
    ABORT = "abort"  # uploads that were given up
    COMPACT = "compact"  # manifests are written
    RETENTION = "retention"  # of the archive
    CURSORS = "cursors"  # subscriptions are copied
    FACTS = "facts"  # schemas and partitions are copied
    BRIDGE = "bridge"  # bridge logs are read and written
    BRIDGE_BUILD = "bridge-build"  # objects for brokers
    BRIDGE_SWAP = "bridge-swap"  # records are rewritten, topics unloaded, what brokers deliver is looked at


THREADS: Mapping[WorkKind, int] = {
    WorkKind.LOOK: 8,
    WorkKind.LEDGERS: 16,
    WorkKind.TAIL: 4,
    WorkKind.SUBSCRIBE: 8,
    WorkKind.INQUIRE: 8,
    WorkKind.DISCOVER: 1,
    WorkKind.ADOPT: 16,
    WorkKind.ADOPT_AGAIN: 8,
    WorkKind.TIMES: 4,
    WorkKind.BEGIN: 8,
    WorkKind.COPY: 2,  # each holds a block or two in memory
    WorkKind.SEAL: 4,
    WorkKind.CATALOG: 8,
    WorkKind.ACKNOWLEDGE: 8,
    WorkKind.RELEASE: 4,
    WorkKind.CLAIM: 8,
    WorkKind.REQUEST: 2,
    WorkKind.ABORT: 2,
    WorkKind.COMPACT: 2,
    WorkKind.RETENTION: 1,  # one after the other: what is under way is recorded, and known, before the next
    WorkKind.CURSORS: 4,
    WorkKind.FACTS: 2,
    WorkKind.BRIDGE: 4,
    WorkKind.BRIDGE_BUILD: 4,
    WorkKind.BRIDGE_SWAP: 4,
}

# These journal, too, in threads of their own.
ADOPTIONS = (WorkKind.ADOPT, WorkKind.ADOPT_AGAIN)
# While any of these is under way for a topic, nothing is decided about it. An acknowledgement only moves the pin.
CHANGES_A_TOPIC = frozenset(
    {
        WorkKind.LEDGERS,
        WorkKind.TAIL,
        *ADOPTIONS,
        WorkKind.SUBSCRIBE,
        WorkKind.BEGIN,
        WorkKind.COPY,
        WorkKind.SEAL,
        WorkKind.CATALOG,
        WorkKind.RELEASE,
    }
)


def foreseen(error: Exception) -> OffloadError:
    """The error, or one of our tree that stands for it."""
    if isinstance(error, OffloadError):
        return error
    log.error(
        "an error that nobody foresaw: %s: %s", type(error).__name__, error, exc_info=error, extra={"see": "unforeseen"}
    )
    return UnforeseenError(f"{type(error).__name__}: {error}")


class _OnlyForeseen:
    """Raises only errors of our tree."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and (found := foreseen(error)) is not error:
            raise found from error


only_foreseen = _OnlyForeseen()  # entered for each topic of each round: it costs next to nothing


class Backlog(NamedTuple):
    """How much of one kind there is. `oldest_ms`: the age of what was posted first."""

    queued: int
    running: int
    oldest_ms: int


@dataclass
class Attempt:
    """When a thread began with it: that it stood in a queue says nothing of who was asked. `committing`: it is at an
    append to the catalog, or that has failed."""

    began: int = 0
    committing: bool = False


@dataclass(eq=False)
class _Piece:
    kind: WorkKind
    key: Hashable
    posted_at: int
    then: Callable[[Any], None]
    running: bool = False


class Work:
    """Posts and takes; both in the driver's thread. `wake` is called, in whatever thread, when there is something to
    take. Whatever a call raises is an OffloadError where it is taken: no topic's answer ends the application."""

    def __init__(self, executors: Mapping[WorkKind, Executor], clock_ms: Callable[[], int]) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._executors = executors
        self._clock_ms = clock_ms
        self._under_way: dict[tuple[WorkKind, Hashable], _Piece] = {}
        self._changing: Counter[Hashable] = Counter()  # pieces under way that will change what is known of a topic
        self._done: deque[tuple[_Piece, Future[Any]]] = deque()

    def post(
        self,
        kind: WorkKind,
        key: Hashable,
        call: Callable[[], T],
        then: Callable[[T | OffloadError], None],
        wakes: Callable[[T], bool] = lambda _: True,
    ) -> bool:
        """Have `call` made; `then` gets what it returned or raised. False: the same is under way already, and nothing
        is posted. `wakes`: whether an answer is worth a round of its own; else it is taken in the next one."""
        if (kind, key) in self._under_way:
            return False
        piece = _Piece(kind, key, self._clock_ms(), then)

        def run() -> T:
            piece.running = True
            with only_foreseen:
                return call()

        def done(answer: Future[T]) -> None:
            self._done.append((piece, answer))
            if answer.exception() is not None or wakes(answer.result()):
                self.wake()

        self._begun(piece)
        try:
            future = self._executors[kind].submit(run)
        except BaseException:
            self._ended(piece)
            raise
        future.add_done_callback(done)
        return True

    def has(self, kind: WorkKind, key: Hashable) -> bool:
        """Whether this is under way."""
        return (kind, key) in self._under_way

    def concerns(self, key: Hashable) -> bool:
        """Whether anything is under way that will change what is known of this topic."""
        return key in self._changing

    def take(self) -> None:
        """Give each `then` its answer. Where one raises, so does this; the next call begins with the same answer."""
        while self._done:
            piece, answer = self._done[0]
            self._ended(piece)
            try:
                piece.then(attempt(answer.result))
            except BaseException:
                self._begun(piece)
                raise
            self._done.popleft()

    def _begun(self, piece: _Piece) -> None:
        self._under_way[piece.kind, piece.key] = piece
        if piece.kind in CHANGES_A_TOPIC:
            self._changing[piece.key] += 1

    def _ended(self, piece: _Piece) -> None:
        del self._under_way[piece.kind, piece.key]
        if piece.kind in CHANGES_A_TOPIC:
            self._changing[piece.key] -= 1
            if not self._changing[piece.key]:
                del self._changing[piece.key]

    def backlog(self) -> Mapping[WorkKind, Backlog]:
        """By kind, for the metrics."""
        now, found = self._clock_ms(), {kind: Backlog(0, 0, 0) for kind in WorkKind}
        for piece in self._under_way.values():
            queued, running, oldest = found[piece.kind]
            age = max(oldest, now - piece.posted_at)
            found[piece.kind] = Backlog(queued + (not piece.running), running + piece.running, age)
        return found


class Pool(Executor):
    """Threads that nobody waits for at the end: their work can be cut off at any moment, and is then done again."""

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._threads = 0
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """As `Executor.submit`, from one thread alone. Raises RuntimeError where there is no thread to run it."""
        future: Future[T] = Future()
        self._waiting.put((future, lambda: fn(*args, **kwargs)))
        if self._threads < self._most:
            self._start_thread()
        return future

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}_{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                self._waiting.get()  # nobody would
                raise
            return  # the others do it
        self._threads += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001 (nobody waits)
        """End the threads once they have done what they are at; nothing else is begun."""
        while not self._waiting.empty():
            self._waiting.get()
        for _ in range(self._threads):
            self._waiting.put(None)

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            future, call = waiting
            try:
                answer = call()
            except BaseException as error:  # noqa: BLE001 (whoever takes the result raises it)
                future.set_exception(error)
            else:
                future.set_result(answer)
            del future, call, waiting
