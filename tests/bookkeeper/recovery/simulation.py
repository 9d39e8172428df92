"""Recovering clients, the real code of them, beside a writer that may still be alive, over a simulated cluster: one
seed, one course."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from offloader.bookkeeper.entry_codec import decode, digest_for
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.recovery.dangers import young_cookies
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import Aborted, Done, RecoveryRules
from offloader.bookkeeper.recovery.runner import Recoverer
from offloader.errors import IntegrityError, MetadataUnavailableError, OutcomeUnknownError
from tests.bookkeeper.recovery.ledger_writer import LedgerWriter
from tests.fakes.bookkeeper import SimulatedCluster, Weather

LEDGER = 7
SHAPES = [(1, 1, 1), (2, 2, 2), (3, 3, 2), (3, 3, 2), (3, 2, 2), (4, 3, 2), (4, 3, 3), (5, 3, 2), (5, 4, 2), (3, 3, 1)]
STEPS = 20_000


@dataclass
class Process:
    """A recovering client that may pause, die, and try again."""

    recoverer: Recoverer
    paused_until: float = 0.0


@dataclass
class Simulation:
    """`lost_disks`: so many; `refuse`: their bookies do not start again, `cookies`: or it shows. `gone`: bookies that
    never come back once the weather clears."""

    seed: int
    lost_disks: int = 0
    refuse: bool = True
    cookies: bool = True
    gone: int = 0
    closed: list[LedgerMetadata] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    replaced: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.choice = random.Random(self.seed)
        shape = self.rng.choice(SHAPES)
        bad = self.rng.choice((0.0, 0.005, 0.02, 0.1))
        slow, slow_delay = self.rng.choice(((bad, 20.0), (0.3, 20.0), (0.5, 0.02)))
        self.to_write = self.rng.choice((0, 1, 2, 5, 20, 60, 60))
        self.to_recover = self.rng.choice((1, 2, 2, 3, 5))
        self.trouble = self.rng.choice((0.001, 0.01, 0.03))
        self.head_start = self.rng.choice((0, 20, 200, 1000))  # steps before anybody recovers
        self.pace = self.rng.choice((0.02, 0.1, 0.3))
        self.haste = self.rng.choice((0.002, 0.01, 0.05))
        if (
            self.seed % 4 == 0
        ):  # a race: recovery begins while the first entries are under way, and every message takes its own time
            shape, bad, slow, slow_delay = (3, 3, 2), 0.0, 0.5, 0.02
            self.to_write, self.head_start, self.pace, self.haste, self.trouble = (
                self.rng.choice((1, 2)),
                0,
                0.5,
                0.2,
                0.0,
            )
        weather = Weather(lost=bad, duplicated=bad, slow=slow, slow_delay=slow_delay, unknown=bad / 2, metadata=bad)
        self.cluster = SimulatedCluster(self.seed, shape[0] + self.rng.randrange(4), weather)
        self.network = self.cluster.network
        self.cluster.create(LEDGER, *shape)
        self.writer = LedgerWriter(self.cluster, LEDGER)
        self.processes: list[Process] = []

    def run(self) -> None:
        for number in range(STEPS):
            if not self._step(late=number > self.head_start):
                break
        else:
            raise AssertionError("it does not end")
        self._heal()
        self.check()

    # One step

    def _step(self, *, late: bool) -> bool:
        ready = [process for process in self.processes if self._ready(process)]
        writing = self.writer.deadline is not None and not self.writer.stopped
        idle = not self.to_recover and not self.processes and not writing
        if self.rng.random() < self.trouble:
            self._disturb()
        elif self.to_write and not self.writer.stopped and self.rng.random() < self.pace:
            self.to_write -= 1
            self.writer.add(self.rng.randbytes(self.rng.randrange(20)))
        elif late and self.to_recover and self.rng.random() < self.haste:
            self.to_recover -= 1
            self._begin()
        elif ready and self.rng.random() < 0.6:
            self._turn(self.rng.choice(ready))
        elif self.rng.random() < 0.3:
            self.writer.turn()
        elif len(self.network):
            self.network.deliver()
        elif not idle:
            self._pass_time()
        else:
            return False
        return True

    def _ready(self, process: Process) -> bool:
        deadline = process.recoverer.deadline
        due = deadline is not None and deadline <= self.network.now
        return process.paused_until <= self.network.now and (process.recoverer.busy or due)

    def _begin(self) -> None:
        bookies, store = self.cluster.client()
        registered = sorted(bookie for bookie, writable in store.available().items() if writable)
        order = tuple(self.choice.sample(registered, len(registered)))
        rules = RecoveryRules(Reading(window=self.rng.choice((1, 2, 8))), writable=order)
        suspects = partial(young_cookies, store=store) if self.cookies else None
        self.processes.append(
            Process(Recoverer(LEDGER, store, bookies, rules, 5.0, suspects, lambda: self.network.now))
        )

    def _turn(self, process: Process) -> None:
        try:
            process.recoverer.turn()
        except (MetadataUnavailableError, OutcomeUnknownError):
            self._end(process, again=True)
            return
        if process.recoverer.over:
            phase = process.recoverer.outcome.phase
            if isinstance(phase, Done):
                self.closed.append(phase.metadata)
                self.replaced += len(process.recoverer.outcome.replaced)
            else:
                self.aborts.append(process.recoverer.outcome.message)
            self._end(process, again=isinstance(phase, Aborted) and self.rng.random() < 0.5)

    def _end(self, process: Process, *, again: bool) -> None:
        self.processes.remove(process)
        if again:
            self._begin()

    def _pass_time(self) -> None:
        times = [process.recoverer.deadline for process in self.processes]
        times += [process.paused_until for process in self.processes]
        times.append(None if self.writer.stopped else self.writer.deadline)
        later = [time for time in times if time is not None and time > self.network.now]
        self.network.now = min(later, default=self.network.now + 1)

    def _disturb(self) -> None:
        """Something breaks, or comes back."""
        acts: list[Callable[[], None]] = [
            self._crash,
            self._return,
            self._pause,
            self._kill,
            self._kill_writer,
            self._lose_disk,
        ]
        self.rng.choice(acts)()

    def _crash(self) -> None:
        self.rng.choice(list(self.cluster.bookies.values())).up = False

    def _return(self) -> None:
        for bookie in self.cluster.bookies.values():
            bookie.up = bookie.up or not (bookie.lost and self.refuse)

    def _pause(self) -> None:
        if self.processes:
            self.rng.choice(self.processes).paused_until = self.network.now + self.rng.expovariate(1 / 10)

    def _kill(self) -> None:
        if self.processes:
            process = self.rng.choice(self.processes)
            process.recoverer.bookies.close()
            self._end(process, again=self.rng.random() < 0.5)

    def _kill_writer(self) -> None:
        if self.rng.random() < 0.3:
            self.writer.stopped = True
        elif self.rng.random() < 0.2 and not self.writer.stopped:
            self.writer.close()

    def _lose_disk(self) -> None:
        if self.lost_disks:
            self.lost_disks -= 1
            bookie = self.rng.choice(sorted(self.cluster.bookies))
            if self.refuse:
                self.cluster.bookies[bookie].lose_disk(refuse=True)
            else:
                self.cluster.replace_disk(bookie)

    # The end

    def _heal(self) -> None:
        """The weather clears, the bookies come back, and one client more closes the ledger."""
        self.network.weather = Weather()
        self._return()
        for bookie in self.rng.sample(sorted(self.cluster.bookies), self.gone):
            self.cluster.bookies[bookie].up = False
        while len(self.network):
            self.network.deliver()
        self.writer.turn()
        self._begin()
        while self.processes:
            process = self.processes[-1]
            if self._ready(process):
                self._turn(process)
            elif len(self.network):
                self.network.deliver()
            else:
                self._pass_time()

    def check(self) -> None:
        """What must hold."""
        metadata = self.cluster.metadata.read(LEDGER).metadata
        if not metadata.closed:
            lost = any(bookie.lost for bookie in self.cluster.bookies.values())
            assert lost or (self.gone and not self.can_do_without_one(metadata)), self.aborts
            return
        last = metadata.last_entry
        assert last >= self.writer.acknowledged, f"closed with {last}, but {self.writer.acknowledged} was acknowledged"
        assert last < len(self.writer.payloads)
        for found in self.closed:
            assert (found.last_entry, found.length) == (last, metadata.length), "one client took another end"
        assert metadata.length == sum(map(len, self.writer.payloads[: last + 1]))
        for entry in range(last + 1):
            copies = sum(self._has(metadata, bookie, entry) for bookie in metadata.write_set(entry))
            lost_bookies = sum(bookie.lost for bookie in self.cluster.bookies.values())
            assert copies >= metadata.ack_quorum - lost_bookies, f"entry {entry} has {copies} copies"

    def can_do_without_one(self, metadata: LedgerMetadata) -> bool:
        """Whether the others can say where it ends, and another bookie can take its place."""
        return metadata.ack_quorum > 1 and len(self.cluster.bookies) > metadata.ensemble_size

    def _has(self, metadata: LedgerMetadata, bookie: str, entry: int) -> bool:
        kept = self.cluster.bookies[bookie].memory.ledgers.get(LEDGER)
        if kept is None or entry not in kept.stored:
            return False
        try:
            found = decode(kept.stored[entry], digest_for(metadata), LEDGER, entry)
        except IntegrityError:
            return False
        return found.payload == self.writer.payloads[entry]
