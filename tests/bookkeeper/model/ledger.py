"""One ledger, its bookies, its writer and the clients that recover it: every order of events.

The writer sends two entries, pipelined or one after the other, to all bookies of their write sets; each message arrives
at some time or never. An entry counts as acknowledged from the moment at which an ack quorum of bookies have taken the
writer's own message: its writer cannot know earlier, and that it learns of it later or never asks less of the clients.
It may also close the ledger itself, as BookKeeper's does also while others recover it.

Where there are spares, the writer may give one of them the place of a bookie, from an entry on of which it has not been
told yet that it and all before it are acknowledged: by compare-and-set, and it uses the new ensemble only once that is
done. Until then it tells nobody of anything, so that from then on the new ensemble's bookies count. What it sent before
to the bookie that lost its place is left out: nobody asks that bookie any more. So may the clients, as the product does
it.

A bookie answers when it gets a request, and its client hears that at once: until then the client does nothing, and what
it does then depends on which answers it has, not on their order. Or the client hears nothing (*unknown*), and the
request may still arrive. A client that crashes does nothing from then on, which it may do in every state; a bookie that
crashes answers *unknown* for ever.

What a client does to a ledger does not depend on the other clients. So each step of a ledger, and of a ledger with one
client, is found once, and remembered by their numbers: most states are these together in yet another way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from offloader.bookkeeper.model import Fragment, LedgerMetadata, LedgerState, Versioned
from offloader.bookkeeper.recovery.forward import Reading
from offloader.bookkeeper.recovery.machine import Looking, RecoveryRules
from offloader.bookkeeper.recovery.messages import (
    BookieRequest,
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
from tests.bookkeeper.model.remembering import remembered
from tests.bookkeeper.model.symmetry import Symmetry
from tests.bookkeeper.model.world import (
    DOWN,
    ENTRIES,
    FENCED,
    Ensembles,
    Ledger,
    Ledgers,
    Metadata,
    State,
    World,
    has,
    took,
)

Alone = Iterator[tuple[Any, Ledger]]  # steps that change no client
Steps = Iterator[tuple[Any, Ledger, int]]  # a client's: what happens, the ledger and the client after it


def _ensembles(metadata: LedgerMetadata) -> Ensembles:
    return tuple((fragment.first_entry, tuple(sorted(map(int, fragment.ensemble)))) for fragment in metadata.fragments)


class LedgerModel:
    def __init__(self, world: World) -> None:
        self.world = world
        ensemble = tuple(str(bookie) for bookie in range(world.ensemble))
        self._shape = LedgerMetadata(
            world.ensemble, world.write_quorum, world.ack_quorum, LedgerState.OPEN, (Fragment(0, ensemble),)
        )
        assert not world.spares or world.ensemble == world.write_quorum, (
            "the order of an ensemble matters where it is striped"
        )
        self._first = _ensembles(self._shape)
        self._write_set = remembered(self._write_set_of)
        self._acknowledged = remembered(self._acknowledged_of)
        self._late = remembered(self._late_of)
        self._broken = remembered(self._broken_of)
        self._alone = remembered(self._alone_of)
        self._moves = remembered(self._moves_of)
        self._certain = remembered(self._certain_of)
        self._served = remembered(self._served_of)
        everybody = tuple(map(str, range(world.bookies)))
        self.ledgers = Ledgers()
        self._closed: set[int] = set()  # in which a client on its way is where it began, see _tidy
        self.clients = Clients(RecoveryRules(Reading(window=world.window), rounds=1000, writable=everybody))
        self.canonical = Symmetry(self._shape, world.spares, self.ledgers, self.clients).canonical

    def initial(self) -> list[State]:
        w = self.world
        begin = ((0,) * w.bookies, Metadata(0, LedgerState.OPEN, -1, self._first), 0, ())
        faults = (w.unknown, w.crashes, w.lost_disks)
        ledgers = [Ledger(*begin, pipelined, False, *faults, self._first, w.changes) for pipelined in (True, False)]
        return [(self.ledgers.number(ledger), *(0,) * w.clients) for ledger in ledgers]

    def _write_set_of(self, ensembles: Ensembles, entry: int) -> tuple[int, ...]:
        if entry >= ensembles[-1][0] and not ensembles[-1][1]:
            return ()
        return tuple(map(int, self._with(ensembles).write_set(entry)))

    def _with(self, ensembles: Ensembles) -> LedgerMetadata:
        fragments = tuple(Fragment(first, tuple(map(str, members))) for first, members in ensembles)
        return replace(self._shape, fragments=fragments)

    # What must hold

    def violation(self, state: State) -> str | None:
        ended = [self.clients.done[number] for number in state[1:] if number in self.clients.done]
        if not ended:
            return self._broken(state[0])
        _, how, last, ensembles = self.ledgers[state[0]].metadata
        for taken in ended:
            if (how, last) != (LedgerState.CLOSED, taken.last_entry):
                return f"a client took {taken.last_entry} for the end, another one {last}"
        broken = self._broken(state[0])
        if broken is None:
            for taken in ended:
                if _ensembles(taken) != ensembles:
                    return f"a client took {taken.fragments} for the fragments, another one {ensembles}"
        return broken

    def _broken_of(self, number: int) -> str | None:
        """What is wrong with a ledger, whatever its clients know."""
        ledger = self.ledgers[number]
        _, how, last, ensembles = ledger.metadata
        firsts = [first for first, _ in ensembles]
        if firsts != sorted(set(firsts)):
            return f"the fragments begin at {firsts}"
        if how != LedgerState.CLOSED:
            return None
        acknowledged = self._acknowledged(ledger.bookies, ledger.ensembles)
        if last < acknowledged:
            return f"closed with {last}, but {acknowledged} was acknowledged"
        few = any(self._copies(ledger, e) < self.world.ack_quorum for e in range(last + 1))
        if few and ledger.lost_disks == self.world.lost_disks:
            return f"closed with {last}, but not every entry has as many copies as the ack quorum"
        return None

    def _acknowledged_of(self, bookies: tuple[int, ...], ensembles: Ensembles) -> int:
        """The last entry of which, and of all before it, the writer may know that it is acknowledged."""
        for entry in range(ENTRIES):
            if sum(bookies[b] & took(entry) > 0 for b in self._write_set(ensembles, entry)) < self.world.ack_quorum:
                return entry - 1
        return ENTRIES - 1

    def _copies(self, ledger: Ledger, entry: int) -> int:
        return sum(ledger.bookies[b] & has(entry) > 0 for b in self._write_set(ledger.metadata.ensembles, entry))

    # What can happen

    def actions(self, state: State) -> Iterator[tuple[Any, State]]:
        number, clients = state[0], state[1:]
        if self.world.reduced:
            for place, client in enumerate(clients):
                certain = self._certain(number, place, client)
                if certain is not None:
                    name, after, stepped = certain
                    yield name, self._state(after, (*clients[:place], stepped, *clients[place + 1 :]))
                    return
        asked = 0
        for client in clients:
            asked |= self.clients.places[client]
        for name, after in self._alone(number, asked):
            yield name, self._state(after, clients)
        for place, client in enumerate(clients):
            if place == 0 or client != clients[place - 1]:  # two that are the same do the same
                for name, after, stepped in self._moves(number, place, client):
                    yield name, self._state(after, (*clients[:place], stepped, *clients[place + 1 :]))

    def _state(self, number: int, clients: tuple[int, ...]) -> State:
        """With the clients in order, and without what they can do no more."""
        if number in self._closed:
            settled = self.clients.settled
            return (number, *sorted([settled[client] for client in clients]))
        return (number, *sorted(clients))

    def _alone_of(self, number: int, asked: int) -> list[tuple[Any, int]]:
        """What happens without a client. `asked`: the bookies that clients wait for, as bits."""
        ledger = self.ledgers[number]
        steps = (*self._writer(ledger), *self._messages(ledger), *self._misfortunes(ledger, asked))
        return [(name, self._tidy(after)) for name, after in steps]

    def _moves_of(self, number: int, place: int, client: int) -> list[tuple[Any, int, int]]:
        """What a client may do."""
        ledger = self.ledgers[number]
        steps = self._client(ledger, number, place, client)
        return [
            (name, self._tidy(after), stepped)
            for name, after, stepped in steps
            if not (self.world.reduced and self._only_gives_up(ledger, after, client, stepped))
        ]

    def _writer(self, ledger: Ledger) -> Alone:
        if ledger.stopped:
            return
        acknowledged = self._acknowledged(ledger.bookies, ledger.ensembles)
        for entry in range(ENTRIES if ledger.pipelined else min(acknowledged + 2, ENTRIES)):
            for bookie in self._write_set(ledger.ensembles, entry):
                bits = ledger.bookies[bookie]
                if not bits & (FENCED | DOWN | took(entry)):
                    yield ("add", bookie, entry), ledger.holding(bookie, bits | has(entry) | took(entry))
        version, how, _, ensembles = ledger.metadata
        if how != LedgerState.CLOSED:  # also while others recover it
            closed = Metadata(version + 1, LedgerState.CLOSED, acknowledged, ensembles)
            yield ("writer closes", acknowledged), ledger._replace(metadata=closed, stopped=True)
        if ledger.changes and (how == LedgerState.OPEN or not self.world.writer_compares):
            yield from self._writer_changes(ledger, acknowledged)

    def _writer_changes(self, ledger: Ledger, acknowledged: int) -> Alone:
        version = ledger.metadata.version
        *before, last = ledger.ensembles
        told = (
            -1
            if ledger.pipelined
            else max((e - 1 for e in range(ENTRIES) if any(b & took(e) for b in ledger.bookies)), default=-1)
        )
        for first in range(max(last[0], told + 1), min(acknowledged + 2, ENTRIES)):
            kept = [*before, last] if last[0] < first else before
            for members in self._changed(last[1]):
                changed = Metadata(version, LedgerState.OPEN, -1, (*kept, (first, members)))
                what = ("writer changes", first, members)
                after = ledger._replace(changes=ledger.changes - 1, ensembles=changed.ensembles)
                yield what, after._replace(metadata=changed._replace(version=version + 1))
                if ledger.unknown:  # it tells nobody of anything any more
                    silent = (*kept, (first, ()))
                    stopped = after._replace(unknown=ledger.unknown - 1, stopped=True, ensembles=silent)
                    yield (*what, "unknown"), stopped._replace(metadata=changed._replace(version=version + 1))
                    yield (*what, "late"), stopped._replace(casts=(*ledger.casts, changed))

    def _changed(self, members: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """With another bookie in the place of each."""
        for lost in members:
            for spare in set(range(self.world.bookies)) - set(members):
                yield tuple(sorted((set(members) - {lost}) | {spare}))

    def _messages(self, ledger: Ledger) -> Alone:
        """What nobody waits for any more arrives."""
        for entry, bookie in self._late(ledger.late):
            bits = ledger.bookies[bookie]
            if not bits & DOWN:
                left = ledger._replace(late=ledger.late & ~self._bits(((entry, bookie),)))
                yield ("late write-back", bookie, entry), left.holding(bookie, bits | has(entry))
        for cast in ledger.casts:
            if cast.version == ledger.metadata.version:
                casts = tuple(c for c in ledger.casts if c != cast)
                yield (
                    ("late metadata", *cast),
                    ledger._replace(casts=casts, metadata=cast._replace(version=cast.version + 1)),
                )

    def _misfortunes(self, ledger: Ledger, asked: int) -> Alone:
        for bookie, bits in enumerate(ledger.bookies):
            # That it is down shows only to those who ask it; what it did not get may also have been lost.
            if ledger.crashes and not bits & DOWN and (asked >> bookie & 1 or not self.world.reduced):
                yield ("crash", bookie), ledger._replace(crashes=ledger.crashes - 1).holding(bookie, bits | DOWN)
            if ledger.crashes and bits & FENCED and not self.world.fences_survive:
                yield (
                    ("crash and return", bookie),
                    ledger._replace(crashes=ledger.crashes - 1).holding(bookie, bits & ~FENCED),
                )
            if ledger.lost_disks:
                left = bits & (took(0) | took(1)) | (DOWN if self.world.lost_disks_refuse else 0)
                yield ("lost disk", bookie), ledger._replace(lost_disks=ledger.lost_disks - 1).holding(bookie, left)

    # Clients

    def _client(self, ledger: Ledger, number: int, place: int, client: int) -> Steps:
        doing = self.clients.states[client]
        if doing.cast is not None:
            yield from self._cast(ledger, place, client, doing.cast)
        elif isinstance(doing.machine.phase, Looking):
            event = MetadataRead(self._versioned(ledger.metadata))
            yield (place, "reads metadata"), *self._stepped(ledger, self.clients.told(client, event))
        for asked in self.clients.asked[client]:
            yield from self._request(ledger, number, place, client, asked)

    def _versioned(self, metadata: Metadata) -> Versioned:
        version, how, last, ensembles = metadata
        return Versioned(replace(self._with(ensembles), state=LedgerState(how), last_entry=last), version)

    def _cast(self, ledger: Ledger, place: int, client: int, cast: WriteMetadata) -> Steps:
        ensembles = _ensembles(cast.metadata) if self.world.closes_with_changes else ledger.metadata.ensembles
        written = Metadata(ledger.metadata.version + 1, int(cast.metadata.state), cast.metadata.last_entry, ensembles)
        what = (place, "writes", cast.metadata.state.name, written.last)
        unsettled = self.clients.told(client, MetadataUnsettled())
        if cast.version != ledger.metadata.version and self.world.compares:
            yield (*what, "conflict"), *self._stepped(ledger, unsettled)
            return
        done = ledger._replace(metadata=written)
        yield what, *self._stepped(done, self.clients.told(client, MetadataWritten(written.version)))
        if ledger.unknown:
            left = ledger.unknown - 1
            yield (*what, "unknown"), *self._stepped(done._replace(unknown=left), unsettled)
            casts = (*ledger.casts, written._replace(version=cast.version))
            yield (*what, "late"), *self._stepped(ledger._replace(unknown=left, casts=casts), unsettled)

    def _request(self, ledger: Ledger, number: int, place: int, client: int, asked: Asked) -> Steps:
        what = (place, asked.kind.__name__, asked.bookie, asked.entry)
        down = ledger.bookies[asked.bookie] & DOWN
        if not down:
            after, answer, held = self._served(number, asked.bookie, asked.entry, asked.kind, asked.fence)
            yield what, *self._stepped(after, self.clients.answered(client, asked.place, answer, held))
        if down or (ledger.unknown and self._comes_last(client, asked)):
            answer = Answer.UNKNOWN if self.world.unknown_is_unknown else Answer.NEGATIVE
            left = ledger if down else ledger._replace(unknown=ledger.unknown - 1)
            late = ((asked.entry, asked.bookie),) if asked.kind is WriteBack and not down else ()
            stepped, dropped = self.clients.answered(client, asked.place, answer, None)
            yield (*what, "unknown"), *self._stepped(left, (stepped, (*dropped, *late)))

    def _served_of(
        self, number: int, bookie: int, entry: int, kind: type[BookieRequest], fence: bool
    ) -> tuple[Ledger, Answer, Held | None]:
        """What a request that arrives comes to, and its answer."""
        ledger = self.ledgers[number]
        bits, held, fences = ledger.bookies[bookie], None, False
        if kind is WriteBack:
            bits |= has(entry) if self.world.writes_back else 0
        else:
            entry = self._last(bits) if kind is ReadLast else entry
            if 0 <= entry < ENTRIES and bits & has(entry):
                held = Held(entry, -1 if ledger.pipelined else entry - 1, 0, b"")
            fences = fence and (self.world.last_fences if kind is ReadLast else self.world.reads_fence)
        answer = Answer.POSITIVE if held or kind is WriteBack else Answer.NEGATIVE
        return ledger.holding(bookie, bits | (FENCED if fences else 0)), answer, held

    def _last(self, bits: int) -> int:
        return max((entry for entry in range(ENTRIES) if bits & has(entry)), default=-1)

    def _stepped(self, ledger: Ledger, after: tuple[int, Late]) -> tuple[Ledger, int]:
        client, late = after
        if not self.world.changes_last and (changed := self.clients.published(client)) is not None:
            client, metadata = changed
            if ledger.metadata.state == LedgerState.IN_RECOVERY:
                written = ledger.metadata._replace(version=ledger.metadata.version + 1, ensembles=_ensembles(metadata))
                ledger = ledger._replace(metadata=written)
        return ledger._replace(late=ledger.late | self._bits(late)) if late else ledger, client

    def _bits(self, late: Late) -> int:
        return sum(1 << (entry * self.world.bookies + bookie) for entry, bookie in set(late))

    def _late_of(self, bits: int) -> Late:
        size = self.world.bookies
        return tuple(
            (entry, bookie) for entry in range(ENTRIES) for bookie in range(size) if bits >> (entry * size + bookie) & 1
        )

    # What is left out

    def _comes_last(self, client: int, asked: Asked) -> bool:
        """Whether the client waits for no other answer of this kind. As the order of answers does not matter to it,
        *unknown* may be taken to come last: it counts only for giving up. (Where it is taken for a negative answer, or
        leads to another ensemble, all this is not so.)"""
        changes = self.world.spares and asked.kind is WriteBack
        if changes or not (self.world.reduced and self.world.unknown_is_unknown):
            return True
        others = (other for other in self.clients.asked[client] if other != asked)
        return not any(other.kind is asked.kind and other.entry == asked.entry for other in others)

    def _only_gives_up(self, before: Ledger, after: Ledger, client: int, stepped: int) -> bool:
        """Whether all that happened is that a client gave up: what may happen then may happen as well while it does
        nothing."""
        unchanged = after.bookies == before.bookies and after.late == before.late and after.metadata == before.metadata
        return unchanged and stepped in self.clients.gave_up and client not in self.clients.gave_up

    def _certain_of(self, number: int, place: int, client: int) -> tuple[Any, int, int] | None:
        """An answer that can only be this one, that changes nothing but what its client knows, and that leaves to
        everybody else what they could do: it can as well come first. Asked: a bookie that is down; to take an entry
        that it has; for an entry that nobody can have."""
        if self.world.lost_disks or not self.world.fences_survive:
            return None
        ledger = self.ledgers[number]
        for asked in self.clients.asked[client]:
            bits = ledger.bookies[asked.bookie]
            if self.world.spares and asked.kind is WriteBack:
                continue  # who has not taken which entry yet is what a change of the ensemble goes by
            takes = asked.kind is WriteBack and bits & has(asked.entry)
            denies = asked.kind is ReadEntry and bits & FENCED and self._extinct(ledger, asked.entry)
            if bits & DOWN or takes or denies:
                name, after, stepped = next(self._request(ledger, number, place, client, asked))
                return name, self._tidy(after), stepped
        return None

    def _extinct(self, ledger: Ledger, entry: int) -> bool:
        """Whether no bookie that is up has the entry or can ever have it."""
        if entry >= ENTRIES:
            return True
        late = {bookie for late_entry, bookie in self._late(ledger.late) if late_entry == entry}
        up = [b for b in self._reached(ledger, entry) if not ledger.bookies[b] & DOWN]
        return all(ledger.bookies[b] & FENCED and not ledger.bookies[b] & has(entry) and b not in late for b in up)

    def _reached(self, ledger: Ledger, entry: int) -> Collection[int]:
        """Bookies that may get an entry, or have it."""
        return range(self.world.bookies) if self.world.spares else self._write_set(ledger.ensembles, entry)

    def _tidy(self, ledger: Ledger) -> int:
        """The number of the ledger, without messages that can change nothing any more.

        And once the ledger is closed, a client on its way can come to nothing but a conflict, and read the metadata
        again: it may be where it began. Its fences would only keep the writer from what it may try, and write-backs
        only add copies.
        """
        if self.world.reduced:
            closed = ledger.metadata.state == LedgerState.CLOSED and self.world.compares
            if closed:
                ledger = ledger._replace(late=0)
            if ledger.late:
                useless = [(e, b) for e, b in self._late(ledger.late) if ledger.bookies[b] & (DOWN | has(e))]
                ledger = ledger._replace(late=ledger.late & ~self._bits(tuple(useless)))
            if ledger.casts:
                casts = {cast for cast in ledger.casts if cast.version == ledger.metadata.version}
                ledger = ledger._replace(casts=tuple(sorted(casts)))
            if closed:
                self._closed.add(self.ledgers.number(ledger))
        return self.ledgers.number(ledger)
