"""Answers of bookies, written down beforehand: what each holds, what it fails to say, and in which order they
answer."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import Fragment, LedgerMetadata, LedgerState, StoredEntry
from offloader.bookkeeper.status import BookieIOError
from tests.bookkeeper.bookie_answers import ScriptedRequest
from tests.bookkeeper.bookie_server import BookieFault, BookieServer
from tests.fakes.memory_bookie import KeptLedger, MemoryBookie

PASSWORD = "secret"
SIZE = 10  # bytes in each entry
_ALWAYS = 1 << 30
_READS = ("read", "fence")


class Tempo(NamedTuple):
    """Seconds: between answers; until a bookie answers although others have not been asked, or not answered before it;
    until a client does not wait any more."""

    gap: float
    patience: float
    timeout: float


@dataclass(frozen=True)
class Script:
    """A ledger whose writer is gone.

    `held`: for each bookie, its entries. `confirmed`: for each entry, the LAC that it carries. `ranks`: in which order
    bookies answer. `failing`, `mute`: (bookie, entry) whose reads fail, or are never answered; entry -1 is the fence.
    `refused`, `unheard`: those whose write-backs fail, or are done and never answered.
    """

    write_quorum: int
    ack_quorum: int
    held: tuple[frozenset[int], ...]
    confirmed: tuple[int, ...]
    ranks: tuple[int, ...]
    failing: frozenset[tuple[int, int]]
    mute: frozenset[tuple[int, int]]
    refused: frozenset[tuple[int, int]] = frozenset()
    unheard: frozenset[tuple[int, int]] = frozenset()

    @property
    def acknowledged(self) -> int:
        """The last entry that its writer may have been told is safe."""
        copies = [sum(entry in held for held in self.held) for entry in range(len(self.confirmed))]
        return next((entry for entry, n in enumerate(copies) if n < self.ack_quorum), len(copies)) - 1

    def metadata(self, bookies: tuple[str, ...]) -> LedgerMetadata:
        """The ledger's, on these bookies."""
        shape = (len(bookies), self.write_quorum, self.ack_quorum)
        return LedgerMetadata(*shape, LedgerState.OPEN, (Fragment(0, bookies),), password=PASSWORD.encode())

    @contextmanager
    def played(self, ledger: int, tempo: Tempo) -> Iterator[LedgerMetadata]:
        """Bookies that answer so, and the metadata of the ledger that they hold."""
        turns = Turns(self, tempo)
        with ExitStack() as stack:
            servers = [stack.enter_context(BookieServer()) for _ in self.held]
            metadata = self.metadata(tuple(f"127.0.0.1:{server.address.port}" for server in servers))
            for number, server in enumerate(servers):
                self._fill(server.bookie, number, ledger, metadata)
                for fault in self._faults(number, turns):
                    server.add(fault)
            yield metadata

    def _fill(self, bookie: MemoryBookie, number: int, ledger: int, metadata: LedgerMetadata) -> None:
        digest = digest_for(metadata)
        entries = (
            StoredEntry(ledger, e, self.confirmed[e], SIZE * (e + 1), bytes([e]) * SIZE) for e in self.held[number]
        )
        if self.held[number]:
            stored = {entry.entry: encode(entry, digest) for entry in entries}
            bookie.ledgers[ledger] = KeptLedger(master_key(metadata.password), stored)

    def _faults(self, number: int, turns: Turns) -> Iterator[BookieFault]:
        def reads(among: frozenset[tuple[int, int]]) -> Callable[[ScriptedRequest], bool]:
            return lambda asked: asked.operation in _READS and (number, asked.entry) in among

        def writes(among: frozenset[tuple[int, int]]) -> Callable[[ScriptedRequest], bool]:
            return lambda asked: asked.operation == "recovery-add" and (number, asked.entry) in among

        def turn(asked: ScriptedRequest) -> bool:
            if asked.operation in _READS:
                turns.wait(number, asked.entry)
            return False

        yield BookieFault(turn, _ALWAYS)
        yield BookieFault(reads(self.mute), _ALWAYS)
        yield BookieFault(reads(self.failing), _ALWAYS, status=BookieIOError.status)
        yield BookieFault(writes(self.refused), _ALWAYS, status=BookieIOError.status)
        yield BookieFault(writes(self.unheard), _ALWAYS)


class Turns:
    """Lets the bookies answer one after the other: to each question, once all have been asked, with a gap between
    answers."""

    def __init__(self, played: Script, tempo: Tempo) -> None:
        self._ranks = played.ranks
        self._write_quorum = played.write_quorum
        self._tempo = tempo
        self._changed = threading.Condition()
        self._asked: dict[int, set[int]] = {}
        self._answered: dict[int, set[int]] = {}

    def wait(self, number: int, entry: int) -> None:
        """Until it is this bookie's turn; not for ever, because a client may not ask all."""
        size = len(self._ranks)
        members = range(size) if entry < 0 else [(entry + i) % size for i in range(self._write_quorum)]
        before = {member for member in members if self._ranks[member] < self._ranks[number]}
        with self._changed:
            asked, answered = self._asked.setdefault(entry, set()), self._answered.setdefault(entry, set())
            asked.add(number)
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: asked.issuperset(members) and answered.issuperset(before), self._tempo.patience
            )
        time.sleep(self._tempo.gap)
        with self._changed:
            answered.add(number)
            self._changed.notify_all()


def script(choice: random.Random) -> Script:
    """A history that may have happened: up to some entry all is confirmed, later ones reached only some bookies."""
    write_quorum = choice.choice((2, 3, 3))
    ensemble = choice.choice((write_quorum, write_quorum, write_quorum + 1))
    confirmed, sent = (safe := choice.randrange(-1, 3)), choice.randrange(6)
    held: list[set[int]] = [set() for _ in range(ensemble)]
    for entry in range(confirmed + 1 + sent):
        for number in range(write_quorum):
            if entry <= safe or choice.random() < 0.7:
                held[(entry + number) % ensemble].add(entry)
    entries = range(-1, confirmed + 2 + sent)
    silent = [(number, entry) for number in range(ensemble) for entry in entries if choice.random() < 0.06]
    mute = [place for place in silent if choice.random() < 0.3]
    played = Script(
        write_quorum,
        choice.randrange(1, write_quorum + 1),
        tuple(map(frozenset, held)),
        tuple(min(entry - 1, choice.randrange(-1, safe + 1)) for entry in range(confirmed + 1 + sent)),
        tuple(choice.sample(range(ensemble), ensemble)),
        frozenset(silent),
        frozenset(mute),
    )
    refusing = [(number, entry) for number in range(ensemble) for entry in entries if choice.random() < 0.2]
    unheard = frozenset(place for place in refusing if choice.random() < 0.1)
    return replace(played, refused=frozenset(refusing) - unheard, unheard=unheard)
