"""One ledger, its bookies, its writer and the clients that recover it: every order of events.

The writer sends two entries, pipelined or one after the other, to all bookies of their write sets; each message arrives at some time
or never. An entry counts as acknowledged from the moment at which an ack quorum of bookies have taken the writer's own message: its
writer cannot know earlier, and that it learns of it later or never asks less of the clients. It may also close the ledger itself.

A bookie answers when it gets a request, and its client hears that at once: until then the client does nothing, and what it does then
depends on which answers it has, not on their order. Or the client hears nothing (*unknown*), and the request may still arrive. A client
that crashes does nothing from then on, which it may do in every state; a bookie that crashes answers *unknown* for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

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
from tests.bookkeeper.model.symmetry import Symmetry
from tests.bookkeeper.model.world import DOWN, ENTRIES, FENCED, Metadata, State, World, has, took

Steps = Iterator[tuple[Any, State]]


class LedgerModel:
    def __init__(self, world: World) -> None:
        self.world = world
        ensemble = tuple(str(bookie) for bookie in range(world.ensemble))
        self._shape = LedgerMetadata(
            world.ensemble, world.write_quorum, world.ack_quorum, LedgerState.OPEN, (Fragment(0, ensemble),)
        )
        self._write_sets = [tuple(map(int, self._shape.write_set(entry))) for entry in range(ENTRIES)]
        self._acknowledged = cache(self._acknowledged_of)
        self._late = cache(self._late_of)
        self.clients = Clients(Rules(Reading(window=world.window), rounds=1000))
        self.canonical = Symmetry(self._shape, self.clients).canonical

    def initial(self) -> list[State]:
        w = self.world
        begin = ((0,) * w.ensemble, Metadata(0, LedgerState.OPEN, -1), (0,) * w.clients, 0, ())
        return [State(*begin, pipelined, False, w.unknown, w.crashes, w.lost_disks) for pipelined in (True, False)]

    # What must hold

    def violation(self, state: State) -> str | None:
        _, how, last = state.metadata
        for number in state.clients:
            phase = self.clients.states[number].machine.phase
            if isinstance(phase, Done) and (how, last) != (LedgerState.CLOSED, phase.metadata.last_entry):
                return f"a client took {phase.metadata.last_entry} for the end, another one {last}"
        if how != LedgerState.CLOSED:
            return None
        acknowledged = self._acknowledged(state.bookies)
        if last < acknowledged:
            return f"closed with {last}, but {acknowledged} was acknowledged"
        if state.lost_disks == self.world.lost_disks and any(
            self._copies(state, e) < self.world.ack_quorum for e in range(last + 1)
        ):
            return f"closed with {last}, but not every entry has as many copies as the ack quorum"
        return None

    def _acknowledged_of(self, bookies: tuple[int, ...]) -> int:
        """The last entry of which, and of all before it, the writer may know that it is acknowledged."""
        for entry in range(ENTRIES):
            if sum(bookies[b] & took(entry) > 0 for b in self._write_sets[entry]) < self.world.ack_quorum:
                return entry - 1
        return ENTRIES - 1

    def _copies(self, state: State, entry: int) -> int:
        return sum(state.bookies[b] & has(entry) > 0 for b in self._write_sets[entry])

    # What can happen

    def actions(self, state: State) -> Steps:
        if not self.world.reduced:
            yield from self._actions(state)
            return
        certain = self._certain(state)
        for name, after in (certain,) if certain else self._actions(state):
            if certain or not self._only_gives_up(state, after):
                yield name, self._tidy(after)

    def _actions(self, state: State) -> Steps:
        yield from self._writer(state)
        yield from self._messages(state)
        yield from self._misfortunes(state)
        for place, number in enumerate(state.clients):
            if place == 0 or number != state.clients[place - 1]:  # two that are the same do the same
                yield from self._client(state, place, number)

    def _writer(self, state: State) -> Steps:
        if state.stopped:
            return
        acknowledged = self._acknowledged(state.bookies)
        for entry in range(ENTRIES if state.pipelined else min(acknowledged + 2, ENTRIES)):
            for bookie in self._write_sets[entry]:
                bits = state.bookies[bookie]
                if not bits & (FENCED | DOWN | took(entry)):
                    yield ("add", bookie, entry), state.holding(bookie, bits | has(entry) | took(entry))
        version, how, _ = state.metadata
        if how == LedgerState.OPEN:
            closed = Metadata(version + 1, LedgerState.CLOSED, acknowledged)
            yield ("writer closes", acknowledged), state._replace(metadata=closed, stopped=True)

    def _messages(self, state: State) -> Steps:
        """What nobody waits for any more arrives."""
        for entry, bookie in self._late(state.late):
            bits = state.bookies[bookie]
            if not bits & DOWN:
                left = state._replace(late=state.late & ~self._bits(((entry, bookie),)))
                yield ("late write-back", bookie, entry), left.holding(bookie, bits | has(entry))
        for cast in state.casts:
            if cast.version == state.metadata.version:
                left = tuple(c for c in state.casts if c != cast)
                yield ("late metadata", *cast), state._replace(casts=left, metadata=cast._replace(version=cast.version + 1))

    def _misfortunes(self, state: State) -> Steps:
        asked = {asked.bookie for number in state.clients for asked in self.clients.asked[number]}
        for bookie, bits in enumerate(state.bookies):
            # That it is down shows only to those who ask it; what it did not get may also have been lost.
            if state.crashes and not bits & DOWN and (bookie in asked or not self.world.reduced):
                yield ("crash", bookie), state._replace(crashes=state.crashes - 1).holding(bookie, bits | DOWN)
            if state.crashes and bits & FENCED and not self.world.fences_survive:
                yield ("crash and return", bookie), state._replace(crashes=state.crashes - 1).holding(bookie, bits & ~FENCED)
            if state.lost_disks:
                left = bits & (took(0) | took(1)) | (DOWN if self.world.lost_disks_refuse else 0)
                yield ("lost disk", bookie), state._replace(lost_disks=state.lost_disks - 1).holding(bookie, left)

    # Clients

    def _client(self, state: State, place: int, number: int) -> Steps:
        client = self.clients.states[number]
        if client.cast is not None:
            yield from self._cast(state, place, number, client.cast)
        elif isinstance(client.machine.phase, Looking):
            event = MetadataRead(self._versioned(state.metadata))
            yield (place, "reads metadata"), self._stepped(state, place, self.clients.told(number, event))
        for asked in self.clients.asked[number]:
            yield from self._request(state, place, number, asked)

    def _versioned(self, metadata: Metadata) -> Versioned:
        version, how, last = metadata
        s = self._shape
        return Versioned(
            LedgerMetadata(s.ensemble_size, s.write_quorum, s.ack_quorum, LedgerState(how), s.fragments, last_entry=last), version
        )

    def _cast(self, state: State, place: int, number: int, cast: WriteMetadata) -> Steps:
        written = Metadata(state.metadata.version + 1, int(cast.metadata.state), cast.metadata.last_entry)
        what = (place, "writes", cast.metadata.state.name, written.last)
        unsettled = self.clients.told(number, MetadataUnsettled())
        if cast.version != state.metadata.version and self.world.compares:
            yield (*what, "conflict"), self._stepped(state, place, unsettled)
            return
        done = state._replace(metadata=written)
        yield what, self._stepped(done, place, self.clients.told(number, MetadataWritten(written.version)))
        if state.unknown:
            left = state.unknown - 1
            yield (*what, "unknown"), self._stepped(done._replace(unknown=left), place, unsettled)
            casts = (*state.casts, written._replace(version=cast.version))
            yield (*what, "late"), self._stepped(state._replace(unknown=left, casts=casts), place, unsettled)

    def _request(self, state: State, place: int, number: int, asked: Asked) -> Steps:
        what = (place, asked.kind.__name__, asked.bookie, asked.entry)
        down = state.bookies[asked.bookie] & DOWN
        if not down:
            yield what, self._processed(state, place, number, asked)
        if down or (state.unknown and self._comes_last(number, asked)):
            answer = Answer.UNKNOWN if self.world.unknown_is_unknown else Answer.NEGATIVE
            left = state if down else state._replace(unknown=state.unknown - 1)
            late = ((asked.entry, asked.bookie),) if asked.kind is WriteBack and not down else ()
            after, dropped = self.clients.answered(number, asked.place, answer, None)
            yield (*what, "unknown"), self._stepped(left, place, (after, (*dropped, *late)))

    def _processed(self, state: State, place: int, number: int, asked: Asked) -> State:
        bits, held, fences = state.bookies[asked.bookie], None, False
        if asked.kind is WriteBack:
            bits |= has(asked.entry) if self.world.writes_back else 0
        else:
            entry = self._last(bits) if asked.kind is ReadLast else asked.entry
            if 0 <= entry < ENTRIES and bits & has(entry):
                held = Held(entry, -1 if state.pipelined else entry - 1, 0, b"")
            fences = asked.fence and (self.world.last_fences if asked.kind is ReadLast else self.world.reads_fence)
        answer = Answer.POSITIVE if held or asked.kind is WriteBack else Answer.NEGATIVE
        after = self.clients.answered(number, asked.place, answer, held)
        return self._stepped(state.holding(asked.bookie, bits | (FENCED if fences else 0)), place, after)

    def _last(self, bits: int) -> int:
        return max((entry for entry in range(ENTRIES) if bits & has(entry)), default=-1)

    def _stepped(self, state: State, place: int, after: tuple[int, Late]) -> State:
        number, late = after
        clients = tuple(sorted((*state.clients[:place], number, *state.clients[place + 1 :])))
        bits = state.late | self._bits(late) if late else state.late
        return State(state.bookies, state.metadata, clients, bits, *state[4:])

    def _bits(self, late: Late) -> int:
        return sum(1 << (entry * self.world.ensemble + bookie) for entry, bookie in set(late))

    def _late_of(self, bits: int) -> Late:
        size = self.world.ensemble
        return tuple((entry, bookie) for entry in range(ENTRIES) for bookie in range(size) if bits >> (entry * size + bookie) & 1)

    # What is left out

    def _comes_last(self, number: int, asked: Asked) -> bool:
        """Whether the client waits for no other answer of this kind. As the order of answers does not matter to it, *unknown* may be taken
        to come last: it counts only for giving up. (Where it is taken for a negative answer, all this is not so.)"""
        if not (self.world.reduced and self.world.unknown_is_unknown):
            return True
        others = (other for other in self.clients.asked[number] if other != asked)
        return not any(other.kind is asked.kind and other.entry == asked.entry for other in others)

    def _only_gives_up(self, before: State, after: State) -> bool:
        """Whether all that happened is that a client gave up: what may happen then may happen as well while it does nothing."""
        unchanged = after.bookies == before.bookies and after.late == before.late and after.metadata == before.metadata
        return unchanged and self._gave_up(after) > self._gave_up(before)

    def _gave_up(self, state: State) -> int:
        return sum(number in self.clients.gave_up for number in state.clients)

    def _certain(self, state: State) -> tuple[Any, State] | None:
        """An answer that can only be this one, that changes nothing but what its client knows, and that leaves to everybody else what they
        could do: it can as well come first. Asked: a bookie that is down; to take an entry that it has; for an entry that nobody can have."""
        if self.world.lost_disks or not self.world.fences_survive:
            return None
        for place, number in enumerate(state.clients):
            for asked in self.clients.asked[number]:
                bits = state.bookies[asked.bookie]
                takes = asked.kind is WriteBack and bits & has(asked.entry)
                denies = asked.kind is ReadEntry and bits & FENCED and self._extinct(state, asked.entry)
                if bits & DOWN or takes or denies:
                    return next(self._request(state, place, number, asked))
        return None

    def _extinct(self, state: State, entry: int) -> bool:
        """Whether no bookie that is up has the entry or can ever have it."""
        if entry >= ENTRIES:
            return True
        late = {bookie for late_entry, bookie in self._late(state.late) if late_entry == entry}
        up = [b for b in self._write_sets[entry] if not state.bookies[b] & DOWN]
        return all(state.bookies[b] & FENCED and not state.bookies[b] & has(entry) and b not in late for b in up)

    def _tidy(self, state: State) -> State:
        """Without messages that can change nothing any more.

        And once the ledger is closed, a client on its way can come to nothing but a conflict, and read the metadata again: it may be
        where it began. Its fences would only keep the writer from what it may try, and write-backs only add copies.
        """
        if state.metadata.state == LedgerState.CLOSED and self.world.compares:
            clients = [number if self.clients.settled(number) else 0 for number in state.clients]
            state = state._replace(clients=tuple(sorted(clients)), late=0)
        if state.late:
            useless = [(e, b) for e, b in self._late(state.late) if state.bookies[b] & (DOWN | has(e))]
            state = state._replace(late=state.late & ~self._bits(tuple(useless)))
        if state.casts:
            casts = {cast for cast in state.casts if cast.version == state.metadata.version}
            state = state._replace(casts=tuple(sorted(casts)))
        return state
