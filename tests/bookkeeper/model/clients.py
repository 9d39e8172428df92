"""Recovering clients in the model: the product's own state machine, its states numbered and its steps remembered.

A client is its machine's state and the requests that it still waits for. What it gave up waiting for cannot change it
any more. Of that, fences are left out: a late fence only takes from what the writer could do, as the loss of the
writer's message does. Write-backs may still arrive, and are handed back.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NamedTuple

from offloader.bookkeeper.model import Fragment, LedgerMetadata, Versioned
from offloader.bookkeeper.recovery.decisions import MissingBookies
from offloader.bookkeeper.recovery.forward import Candidate, Forward
from offloader.bookkeeper.recovery.machine import (
    Aborted,
    Closing,
    Done,
    Fencing,
    Marking,
    Measuring,
    Recovery,
    RecoveryRules,
    start,
    step,
)
from offloader.bookkeeper.recovery.messages import (
    Answered,
    BookieRequest,
    Event,
    Held,
    ReadEntry,
    ReadLast,
    WriteBack,
    WriteMetadata,
)
from offloader.bookkeeper.status import Answer

Late = tuple[tuple[int, int], ...]  # (entry, bookie) of write-backs
BOOKIE_REQUESTS = ReadLast | ReadEntry | WriteBack


class Client(NamedTuple):
    """`cast`: the write of metadata that it waits for."""

    machine: Recovery
    pending: frozenset[BookieRequest]
    cast: WriteMetadata | None = None


class Asked(NamedTuple):
    """A request to a bookie. `place`: where it stands in its client's list."""

    place: int
    bookie: int
    entry: int
    kind: type[BookieRequest]
    fence: bool


class Clients:
    """All states of clients by number; 0 is the first. `asked`, and `places`: which bookies they wait for, and these as
    bits. `done`: what those that are at their end took for the ledger. `settled`: the client, or 0 where it is neither
    at its end nor writes metadata."""

    def __init__(self, rules: RecoveryRules) -> None:
        self._names = {name: name for name in rules.writable}
        self.states: list[Client] = []
        self.asked: list[tuple[Asked, ...]] = []
        self.places: list[int] = []
        self.settled: list[int] = []
        self.done: dict[int, LedgerMetadata] = {}
        self.gave_up: set[int] = set()
        self._requests: list[tuple[BookieRequest, ...]] = []
        self._numbers: dict[Client, int] = {}
        self._steps: dict[Any, tuple[int, Late]] = {}
        self.number(Client(start(rules)[0], frozenset()))

    def number(self, client: Client) -> int:
        if client not in self._numbers:
            self._numbers[client] = len(self.states)
            self.states.append(client)
            self.settled.append(len(self.states) - 1 if client.machine.over or client.cast is not None else 0)
            if isinstance(client.machine.phase, Aborted):
                self.gave_up.add(len(self.states) - 1)
            if isinstance(client.machine.phase, Done):
                self.done[len(self.states) - 1] = client.machine.phase.metadata
            requests = tuple(sorted(client.pending, key=repr))
            self._requests.append(requests)
            self.asked.append(tuple(_asked(place, request) for place, request in enumerate(requests)))
            self.places.append(sum({1 << int(request.bookie) for request in requests}))
        return self._numbers[client]

    def answered(self, number: int, place: int, answer: Answer, held: Held | None) -> tuple[int, Late]:
        """The client after a bookie's answer, and the write-backs that it does not wait for any more."""
        key = (number, place, answer.value, held)
        if key not in self._steps:
            self._steps[key] = self._after(number, Answered(self._requests[number][place], answer, held))
        return self._steps[key]

    def told(self, number: int, event: Event) -> tuple[int, Late]:
        """The client after an event of the metadata."""
        key = (number, event)
        if key not in self._steps:
            self._steps[key] = self._after(number, event)
        return self._steps[key]

    def renamed(self, number: int, names: dict[str, str]) -> int:
        """The client with other names for the bookies."""
        return self.number(_renamed(self.states[number], names))

    def _after(self, number: int, event: Event) -> tuple[int, Late]:
        client = self.states[number]
        machine, requests = step(client.machine, event)
        done = {event.request} if isinstance(event, Answered) else set()
        sent = (client.pending - done) | {r for r in requests if isinstance(r, BOOKIE_REQUESTS)}
        waited = frozenset(r for r in sent if _waits(machine, r))
        cast = next((r for r in requests if isinstance(r, WriteMetadata)), None)
        late = tuple((r.entry, int(r.bookie)) for r in sent - waited if isinstance(r, WriteBack))
        return self.number(_renamed(Client(_forgetting(machine), waited, cast), self._names)), late

    def published(self, number: int) -> tuple[int, LedgerMetadata] | None:
        """A broken client writes the ensembles that it has changed at once: what it writes, and the client
        afterwards."""
        client = self.states[number]
        phase, versioned = client.machine.phase, client.machine.versioned
        if (
            not isinstance(phase, Forward)
            or versioned is None
            or phase.written.fragments == versioned.metadata.fragments
        ):
            return None
        machine = replace(client.machine, versioned=Versioned(phase.written, versioned.version + 1))
        return self.number(client._replace(machine=machine)), phase.written


class Renamed(dict[int, int]):
    """The clients' numbers with other names for the bookies."""

    def __init__(self, clients: Clients, names: dict[str, str]) -> None:
        super().__init__()
        self._clients, self._names = clients, names

    def __missing__(self, number: int) -> int:
        self[number] = self._clients.renamed(number, self._names)
        return self[number]


def _forgetting(machine: Recovery) -> Recovery:
    """Without what does not matter any more: states that are the same in what they can still do are the same."""
    match machine.phase:
        case Aborted():  # however it came to that
            return replace(machine, round=0, versioned=None, phase=Aborted("", MissingBookies(0, ())))
        case Closing() as phase:  # nothing is waited for
            return replace(machine, round=0, phase=replace(phase, forward=_end_of(phase.forward)))
        case Measuring() as phase:  # what is heard may still show that the entry after the end was acknowledged
            return replace(machine, round=0, phase=replace(phase, forward=_end_of(phase.forward)))
        case _:
            return replace(machine, round=0)


def _end_of(forward: Forward) -> Forward:
    """Only which entry was left out and what was confirmed; not who said so."""
    sealed = forward.sealed
    return replace(forward, sealed=sealed and Candidate(sealed.entry, sealed.write_set, sealed.ack_quorum))


def _asked(place: int, request: BookieRequest) -> Asked:
    entry = -1 if isinstance(request, ReadLast) else request.entry
    fence = not isinstance(request, WriteBack) and request.fence
    return Asked(place, int(request.bookie), entry, type(request), fence)


def _waits(machine: Recovery, request: BookieRequest) -> bool:
    """Whether an answer would change anything."""
    match machine.phase:
        case Fencing():
            return isinstance(request, ReadLast)
        case Forward(candidates=candidates):
            asked = [c for c in candidates if not isinstance(request, ReadLast) and c.entry == request.entry]
            return any(request.bookie in c.holders if isinstance(request, WriteBack) else c.held is None for c in asked)
        case Measuring():
            return isinstance(request, ReadEntry) and not request.fence
        case _:
            return False


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Wherever bookies are named. Ensembles and write sets are sorted: their order is of no interest where one is the
    other."""
    match value:
        case Client(machine, pending, cast):
            return Client(
                _renamed(machine, names),
                frozenset(replace(r, bookie=names[r.bookie]) for r in pending),
                _renamed(cast, names),
            )
        case (
            Recovery()
            | Fencing()
            | Marking()
            | Forward()
            | Measuring()
            | Closing()
            | Done()
            | Candidate()
            | WriteMetadata()
            | LedgerMetadata()
            | Fragment()
        ):
            return replace(value, **{f.name: _renamed(getattr(value, f.name), names) for f in fields(value)})
        case Versioned(metadata, version):
            return Versioned(_renamed(metadata, names), version)
        case frozenset():
            return frozenset(names[name] for name in value)
        case (str(), *_):
            return tuple(sorted(names[name] for name in value))
        case (Candidate() | Fragment(), *_):
            return tuple(_renamed(v, names) for v in value)
        case _:
            return value
