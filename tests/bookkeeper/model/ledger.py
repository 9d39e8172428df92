"""One ledger, its bookies, its writer and two clients that recover it: every order of events.

The writer sends two entries, pipelined or one after the other, to all bookies of their write sets; each message arrives at some time
or never. It counts as acknowledged from the moment at which an ack quorum of bookies have taken the writer's own message: the writer
cannot know earlier, and that it learns of it later or never asks less of the clients. It may also close the ledger itself.

A bookie answers when it gets a request; who asked hears it then, never (*unknown*), or asked in vain. That answers take their time,
too, adds nothing: a client does nothing before it hears them, and of answers that are under way the order does not matter to it.
A process that crashes does nothing from then on, which every state allows; a bookie that crashes answers *unknown* for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, NamedTuple

from offloader.bookkeeper.coverage import write_sets
from offloader.bookkeeper.model import Fragment, LedgerMetadata, LedgerState, Versioned
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import Done, Looking, Rules
from offloader.bookkeeper.recovery.messages import (
    Held,
    MetadataRead,
    MetadataUnsettled,
    MetadataWritten,
    ReadEntry,
    ReadLast,
    WriteBack,
    WriteMetadata,
)
from offloader.bookkeeper.status import Answer
from tests.bookkeeper.model.clients import Asked, Clients, Late

ENTRIES = 2

# A bookie is a number made of these bits, and for each entry of those two, shifted.
FENCED, DOWN, EMPTIED = 1, 2, 4
HAS, TOOK = 8, 16  # it has the entry; it took it from the writer


def has(entry: int) -> int:
    return HAS << 2 * entry


def took(entry: int) -> int:
    return TOOK << 2 * entry


@dataclass(frozen=True)
class World:
    """What may happen. Faults are counted over all: `unknown` answers, crashes of bookies, disks that are lost.

    The rest are ways in which clients or bookies are broken.
    """

    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    window: int = 1
    clients: int = 2
    unknown: int = 1
    crashes: int = 1
    lost_disks: int = 0
    lost_disks_refuse: bool = False
    last_fences: bool = True
    reads_fence: bool = True
    unknown_is_negative: bool = False
    writes_back: bool = True
    compares: bool = True
    fences_survive: bool = True


class State(NamedTuple):
    """`casts`: writes of metadata whose outcome nobody knows, which may still come: (version, state, last entry)."""

    bookies: tuple[int, ...]
    metadata: tuple[int, int, int]  # version, state, last entry
    clients: tuple[int, ...]
    late: int  # write-backs that may still arrive, a bit each
    casts: tuple[tuple[int, int, int], ...]
    pipelined: bool
    stopped: bool
    unknown: int
    crashes: int
    lost_disks: int


@dataclass
class LedgerModel:
    world: World
    clients: Clients = field(init=False)

    def __post_init__(self) -> None:
        w = self.world
        ensemble = tuple(str(bookie) for bookie in range(w.ensemble))
        self.metadata = LedgerMetadata(w.ensemble, w.write_quorum, w.ack_quorum, LedgerState.OPEN, (Fragment(0, ensemble),))
        self.write_sets = [tuple(map(int, self.metadata.write_set(entry))) for entry in range(ENTRIES)]
        self.clients = Clients(Rules(Reading(window=w.window), rounds=4))
        self._renamings = self._symmetries()
        self._leasts: dict[tuple[int, ...], tuple[tuple[int, ...], list[int]]] = {}

    def initial(self) -> list[State]:
        w = self.world
        first = (0,) * w.clients
        bookies = (0,) * w.ensemble
        return [
            State(bookies, (0, LedgerState.OPEN, -1), first, 0, (), pipelined, False, w.unknown, w.crashes, w.lost_disks)
            for pipelined in (True, False)
        ]

    # What must hold

    def violation(self, state: State) -> str | None:
        _, how, last = state.metadata
        if how != LedgerState.CLOSED:
            return None
        acknowledged = self.acknowledged(state)
        if last < acknowledged:
            return f"closed with {last}, but {acknowledged} was acknowledged"
        for number in state.clients:
            phase = self.clients.states[number].machine.phase
            if isinstance(phase, Done) and phase.metadata.last_entry != last:
                return f"one client took {phase.metadata.last_entry} as the end, but it is {last}"
        for entry in range(last + 1):
            copies = sum(bool(state.bookies[b] & has(entry)) for b in self.write_sets[entry])
            if copies < self.world.ack_quorum and state.lost_disks == self.world.lost_disks:
                return f"closed with {last}, but {entry} has {copies} copies"
        return None

    def acknowledged(self, state: State) -> int:
        """The last entry that its writer knows to be acknowledged, and all before it."""
        for entry in range(ENTRIES):
            taken = sum(bool(state.bookies[b] & took(entry)) for b in self.write_sets[entry])
            if taken < self.world.ack_quorum:
                return entry - 1
        return ENTRIES - 1

    # What can happen

    def actions(self, state: State) -> Iterator[tuple[Any, State]]:
        for name, after in self._actions(state):
            if self.clients.gave_up.isdisjoint(after.clients):
                yield name, self._tidy(after)

    def _actions(self, state: State) -> Iterator[tuple[Any, State]]:
        certain = self._certain(state)
        if certain is not None:
            yield certain
            return
        yield from self._writer(state)
        yield from self._environment(state)
        for place, number in enumerate(state.clients):
            if place == 0 or number != state.clients[place - 1]:  # two that are the same do the same
                yield from self._client(state, place, number)

    def _certain(self, state: State) -> tuple[Any, State] | None:
        """An answer that can only be this one, that changes nothing but what its client knows, and that leaves to everybody else what they
        could do: it can as well come first. A write-back to a bookie that has the entry; whatever is asked of a bookie that is down."""
        if self.world.lost_disks:
            return None
        for place, number in enumerate(state.clients):
            for asked in self.clients.asked[number]:
                holds = state.bookies[asked.bookie]
                if holds & DOWN:
                    return next(self._request(state, place, number, asked))
                repeated = asked.kind is WriteBack and holds & has(asked.entry)
                if repeated or (asked.kind is ReadEntry and holds & FENCED and self._extinct(state, asked.entry)):
                    return (place, asked.kind.__name__, asked.bookie, asked.entry), self._processed(state, place, number, asked)
        return None

    def _extinct(self, state: State, entry: int) -> bool:
        """Whether no bookie that is up has the entry or can ever have it."""
        if entry >= ENTRIES:
            return True
        late = state.late >> entry * self.world.ensemble
        alive = (b for b in self.write_sets[entry] if not state.bookies[b] & DOWN)
        return not any(state.bookies[b] & has(entry) or not state.bookies[b] & FENCED or late >> b & 1 for b in alive)

    def _writer(self, state: State) -> Iterator[tuple[Any, State]]:
        if state.stopped:
            return
        acknowledged = self.acknowledged(state)
        for entry in range(ENTRIES):
            if entry > acknowledged + 1 and not state.pipelined:
                continue
            for bookie in self.write_sets[entry]:
                holds = state.bookies[bookie]
                if not holds & (FENCED | DOWN | took(entry)):
                    yield ("add", bookie, entry), _with(state, bookie, holds | has(entry) | took(entry))
        version, how, _ = state.metadata
        if how == LedgerState.OPEN:
            yield (
                ("writer closes", acknowledged),
                state._replace(metadata=(version + 1, LedgerState.CLOSED, acknowledged), stopped=True),
            )

    def _environment(self, state: State) -> Iterator[tuple[Any, State]]:
        for bookie, holds in enumerate(state.bookies):
            for entry in range(ENTRIES):
                bit = 1 << (entry * self.world.ensemble + bookie)
                if state.late & bit and not holds & DOWN:
                    yield (
                        ("late write-back", bookie, entry),
                        _with(state, bookie, holds | has(entry))._replace(late=state.late & ~bit),
                    )
            if state.crashes and not holds & DOWN and any(bookie == asked.bookie for n in state.clients for asked in self.clients.asked[n]):
                yield ("crash", bookie), _with(state, bookie, holds | DOWN)._replace(crashes=state.crashes - 1)
            if state.crashes and holds & FENCED and not self.world.fences_survive:
                yield ("crash and return", bookie), _with(state, bookie, holds & ~FENCED)._replace(crashes=state.crashes - 1)
            if state.lost_disks:
                left = holds & (took(0) | took(1)) | EMPTIED | (DOWN if self.world.lost_disks_refuse else 0)
                yield ("lost disk", bookie), _with(state, bookie, left)._replace(lost_disks=state.lost_disks - 1)
        for cast in state.casts:
            version, how, last = cast
            left = tuple(c for c in state.casts if c != cast)
            if version == state.metadata[0]:
                yield ("late metadata", how, last), state._replace(casts=left, metadata=(version + 1, how, last))

    # Clients

    def _client(self, state: State, place: int, number: int) -> Iterator[tuple[Any, State]]:
        client = self.clients.states[number]
        if client.cast is not None:
            yield from self._cast(state, place, number, client.cast)
        elif isinstance(client.machine.phase, Looking):
            event = MetadataRead(self._versioned(state.metadata))
            yield (place, "reads metadata"), self._stepped(state, place, self.clients.told(number, event))
        for asked in self.clients.asked[number]:
            yield from self._request(state, place, number, asked)

    def _versioned(self, metadata: tuple[int, int, int]) -> Versioned:
        version, how, last = metadata
        made = LedgerMetadata(
            self.metadata.ensemble_size, self.metadata.write_quorum, self.metadata.ack_quorum, LedgerState(how), self.metadata.fragments,
            last_entry=last, length=0,
        )  # fmt: skip
        return Versioned(made, version)

    def _cast(self, state: State, place: int, number: int, cast: WriteMetadata) -> Iterator[tuple[Any, State]]:
        version, how, last = state.metadata[0], int(cast.metadata.state), cast.metadata.last_entry
        what = (place, "writes", cast.metadata.state.name, last)
        unsettled = self.clients.told(number, MetadataUnsettled())
        if cast.version != version and self.world.compares:
            yield (*what, "conflict"), self._stepped(state, place, unsettled)
            return
        written = state._replace(metadata=(version + 1, how, last))
        yield what, self._stepped(written, place, self.clients.told(number, MetadataWritten(version + 1)))
        if state.unknown:
            left = state.unknown - 1
            yield (*what, "unknown"), self._stepped(written._replace(unknown=left), place, unsettled)
            casts = (*state.casts, (cast.version, how, last))
            yield (*what, "late"), self._stepped(state._replace(unknown=left, casts=casts), place, unsettled)

    def _request(self, state: State, place: int, number: int, asked: Asked) -> Iterator[tuple[Any, State]]:
        what = (place, asked.kind.__name__, asked.bookie, asked.entry)
        holds = state.bookies[asked.bookie]
        down = holds & DOWN
        if not down:
            yield what, self._processed(state, place, number, asked)
        if down or state.unknown:
            answer = Answer.NEGATIVE if self.world.unknown_is_negative else Answer.UNKNOWN
            left = state if down else state._replace(unknown=state.unknown - 1)
            if asked.kind is WriteBack and not down:
                left = left._replace(late=left.late | self._bits(((asked.entry, asked.bookie),)))
            yield (*what, "unknown"), self._stepped(left, place, self.clients.answered(number, asked.place, answer, None))

    def _processed(self, state: State, place: int, number: int, asked: Asked) -> State:
        bookie, entry = asked.bookie, asked.entry
        holds = state.bookies[bookie]
        if asked.kind is WriteBack:
            answer, held = Answer.POSITIVE, None
            holds |= has(entry) if self.world.writes_back else 0
        else:
            entry = _last(holds) if asked.kind is ReadLast else entry
            held = self._held(state, entry) if 0 <= entry < ENTRIES and holds & has(entry) else None
            answer = Answer.NEGATIVE if held is None else Answer.POSITIVE
            honoured = self.world.last_fences if asked.kind is ReadLast else self.world.reads_fence
            holds |= FENCED if asked.fence and honoured else 0
        return self._stepped(_with(state, bookie, holds), place, self.clients.answered(number, asked.place, answer, held))

    def _held(self, state: State, entry: int) -> Held:
        return Held(entry, -1 if state.pipelined else entry - 1, 0, b"")

    def _stepped(self, state: State, place: int, after: tuple[int, Late]) -> State:
        number, late = after
        clients = tuple(sorted((*state.clients[:place], number, *state.clients[place + 1 :])))
        return state._replace(clients=clients, late=state.late | self._bits(late))

    def _bits(self, late: Late) -> int:
        bits = 0
        for entry, bookie in late:
            bits |= 1 << (entry * self.world.ensemble + bookie)
        return bits

    # What is the same

    def _tidy(self, state: State) -> State:
        """Without messages that can change nothing any more."""
        if state.late:
            late = state.late
            for bookie, holds in enumerate(state.bookies):
                for entry in range(ENTRIES):
                    if holds & DOWN or holds & has(entry):
                        late &= ~self._bits(((entry, bookie),))
            state = state._replace(late=late)
        if state.casts:
            state = state._replace(casts=tuple(sorted({cast for cast in state.casts if cast[0] == state.metadata[0]})))
        if state.metadata[1] == LedgerState.CLOSED and self.world.compares:
            state = self._closed(state)
        return state

    def _closed(self, state: State) -> State:
        """Once the ledger is closed, a client on its way can come to nothing but a conflict, and read the metadata again: it is where it
        began. Its fences would only keep the writer from what it may try, and its write-backs only add copies."""
        clients = [n if self.clients.settled(n) else 0 for n in state.clients]
        return state._replace(clients=tuple(sorted(clients)), late=0)

    def canonical(self, state: State) -> Any:
        bookies, indexes = self._least(state.bookies)
        if len(indexes) == 1 and not indexes[0]:
            return state
        keys = []
        for index in indexes:
            renaming = self._renamings[index]
            clients = sorted([self.clients.renamed(number, index, renaming.names) for number in state.clients])
            keys.append((clients, self._renamed_late(state.late, renaming) if state.late else 0))
        clients, late = min(keys)
        return State(bookies, state.metadata, tuple(clients), late, *state[4:])

    def _least(self, bookies: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
        """The least of its renamings, and which ones lead there."""
        if bookies not in self._leasts:
            renamed = [tuple(bookies[old] for old in renaming.old) for renaming in self._renamings]
            least = min(renamed)
            self._leasts[bookies] = (least, [index for index, found in enumerate(renamed) if found == least])
        return self._leasts[bookies]

    def _renamed_late(self, late: int, renaming: Renaming) -> int:
        size = self.world.ensemble
        pairs = [(entry, bookie) for entry in range(ENTRIES) for bookie in range(size) if late >> (entry * size + bookie) & 1]
        return self._bits(tuple((entry, renaming.new[bookie]) for entry, bookie in pairs))

    def _symmetries(self) -> list[Renaming]:
        """The renamings that change no entry's write set and not what the write sets of the last fragment are."""
        own = [set(write_set) for write_set in self.write_sets]
        family = {frozenset(map(int, write_set)) for write_set in write_sets(self.metadata)}
        found = []
        for new in permutations(range(self.world.ensemble)):
            kept = all({new[bookie] for bookie in write_set} == write_set for write_set in own)
            if kept and {frozenset(new[bookie] for bookie in write_set) for write_set in family} == family:
                old = tuple(new.index(bookie) for bookie in range(self.world.ensemble))
                found.append(Renaming(new, old, {str(a): str(b) for a, b in enumerate(new)}))
        return found


class Renaming(NamedTuple):
    """`new[a]` is what bookie a is called, `old[b]` who is called b."""

    new: tuple[int, ...]
    old: tuple[int, ...]
    names: dict[str, str]


def _with(state: State, bookie: int, holds: int) -> State:
    return state._replace(bookies=(*state.bookies[:bookie], holds, *state.bookies[bookie + 1 :]))


def _last(holds: int) -> int:
    return max((entry for entry in range(ENTRIES) if holds & has(entry)), default=-1)
