"""What becomes of a subscription that is protected, from look to look: pure, no I/O.

Brokers forget acknowledgements when a topic is loaded anew: after a crash those that were not stored yet, and beyond a
bound, and after a clean unload those of parts of batches. A state that went back by a crash looks like one that
somebody has reset. Only one thing tells them apart: **a reset stores a record at once**, before it takes effect. So

* a state is protected only once it was seen between two looks that saw the same last record: no reset lies between;
* it is acknowledged again only where the topic was loaded and nothing was stored since, the subscription stands
  exactly where its last record leaves it, and that record is the very one that was seen with the protected state, or
  the single one that a clean unload writes;
* anything else that goes back is somebody's reset, and ends the protection of what was acknowledged before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from offloader.cursors.core.acknowledged import AcknowledgedSet, Lengths, entries_of
from offloader.model import EntryRange, PartlyAcknowledged

TRIES = 3  # to acknowledge what a broker does not keep
DOUBTS = 2  # looks in a row that must find a subscription gone back without a proof, before its protection ends

ANOTHER = "it was deleted and made anew, or its topic was"
IN_USE = "something was acknowledged, or it was reset, since its topic was loaded"
ELSEWHERE = "it does not stand where its last record leaves it: it was reset"
OTHER_RECORD = "records that were not seen were stored since: what it acknowledged before may have been reset"
NOT_KEPT = "its broker does not keep what is acknowledged again"


class RecordId(NamedTuple):
    """Which record is the last one. `node`: the version of the cursor's node. `ledger`: whose last entry counts; None:
    the node itself. `metadata`: the version of that ledger's metadata."""

    node: int
    ledger: int | None = None
    entry: int = -1
    metadata: int = -1

    def is_same(self, other: RecordId) -> bool:
        """Whether nothing was stored between: a ledger's metadata also change where nothing is."""
        return self[:3] == other[:3]

    def is_closing(self, before: RecordId) -> bool:
        """Whether this one, of a ledger that is closed, is what its writer wrote at a clean unload, and nothing else
        was written since `before`. A ledger that another broker closed, after a crash, has two more changes."""
        entry, metadata = before.entry + 1, before.metadata + 1
        return self.ledger is not None and self == before._replace(entry=entry, metadata=metadata)


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record that is stored. `batches`: partly acknowledged. `closed`: nothing can be added to its ledger."""

    id: RecordId
    state: AcknowledgedSet
    batches: tuple[PartlyAcknowledged, ...] = ()
    closed: bool = False


class Incarnation(NamedTuple):
    """What tells a topic and a subscription from others of the same names: when, and by which transaction, their nodes
    were made."""

    topic: int
    cursor: int


@dataclass(frozen=True, slots=True)
class CursorSeen:
    """One look: what the broker has in memory, and then what is stored. `fresh`: the topic was loaded, and nothing of
    the subscription was stored since. `load`: tells that load from others. `lengths`: the topic's ledgers."""

    incarnation: Incarnation
    memory: AcknowledgedSet
    fresh: bool
    record: LastRecord
    lengths: Lengths
    load: str = ""

    @property
    def is_as_stored(self) -> bool:
        """Whether it stands exactly where its record leaves it."""
        return self.memory.is_same(self.record.state, self.lengths)


@dataclass(frozen=True, slots=True)
class Protection:
    """What is known of a subscription. `record`: the last one at the last look. `memory`: all that it had acknowledged
    while that was the last one; None: not known yet. `doubts`: looks since then that found less without a proof.
    `tries`: to acknowledge it again. `parts_in`: the load since which parts of batches were acknowledged again; brokers
    tell nobody of them, and store them only with a whole entry."""

    incarnation: Incarnation
    record: RecordId
    memory: AcknowledgedSet | None = None
    doubts: int = 0
    tries: int = 0
    parts_in: str | None = None


class Action(StrEnum):
    """What follows from a look."""

    REMEMBER = "remember"  # what it has acknowledged now, as far as that is proven
    WAIT = "wait"  # for the next look
    ACKNOWLEDGE = "acknowledge"
    END = "end"  # the protection of what was acknowledged before; what is acknowledged from now on is protected


@dataclass(frozen=True, slots=True)
class Ruling:
    """`whole`, `parts`: what is to be acknowledged again. `why`: for whoever waits, or is ended."""

    action: Action
    protection: Protection
    whole: tuple[EntryRange, ...] = ()
    parts: tuple[PartlyAcknowledged, ...] = ()
    why: str = ""

    @property
    def entries(self) -> int:
        """How many whole entries are to be acknowledged again."""
        return sum(one.span for one in self.whole)


def rule(known: Protection | None, seen: CursorSeen) -> Ruling:
    """What follows. `known`: what the former look left; None: this is the first."""
    anew = Protection(seen.incarnation, seen.record.id)
    if known is not None and known.incarnation != seen.incarnation:
        return Ruling(Action.END, anew, why=ANOTHER)
    former = known or anew
    forgotten = former.memory.without(seen.memory, seen.lengths) if former.memory is not None else {}
    why = _doubt(former, seen) if forgotten else ""
    if why:
        if former.doubts + 1 < DOUBTS:
            return Ruling(Action.WAIT, replace(former, doubts=former.doubts + 1), why=why)
        return Ruling(Action.END, anew, why=why)
    parts = _forgotten_parts(seen) if former.parts_in != seen.load else ()
    if not forgotten and not parts:
        return Ruling(Action.REMEMBER, anew if known is None else _remembered(known, seen))
    if not forgotten or former.tries < TRIES:
        tried = replace(former, tries=former.tries + bool(forgotten), doubts=0, parts_in=seen.load)
        return Ruling(Action.ACKNOWLEDGE, tried, tuple(entries_of(forgotten)), parts)
    return Ruling(Action.END, anew, why=NOT_KEPT)


def at_stake(known: Protection, record: LastRecord, lengths: Lengths) -> int:
    """How many entries that are protected a crash now would make the broker forget."""
    if known.memory is None:
        return 0
    return sum(bits.bit_count() for bits in known.memory.without(record.state, lengths).values())


def _doubt(known: Protection, seen: CursorSeen) -> str:
    """Why it is not proven that a broker forgot, and nobody took back; empty: it is."""
    if not seen.fresh:
        return IN_USE
    if not seen.is_as_stored:
        return ELSEWHERE
    if seen.record.id.is_same(known.record) or _is_unloaded(known, seen.record):
        return ""
    return OTHER_RECORD


def _is_unloaded(known: Protection, record: LastRecord) -> bool:
    """Whether a record is what a clean unload wrote: then its position did not go back either. A writer that cannot
    write closes its ledger in the same way; where that happens behind a reset, and its broker dies before it can store
    anything elsewhere, only a position that went back tells of the reset."""
    is_closing = record.closed and record.id.is_closing(known.record)
    return is_closing and known.memory is not None and record.state.mark_delete >= known.memory.mark_delete


def _forgotten_parts(seen: CursorSeen) -> tuple[PartlyAcknowledged, ...]:
    """A clean unload writes parts of batches into the node, where many brokers do not read them. They are the complete
    state: no look before is needed to prove it."""
    if not seen.fresh or seen.record.id.ledger is not None or not seen.record.batches or not seen.is_as_stored:
        return ()
    listed = {ledger for ledger, _ in seen.lengths}
    behind = (one for one in seen.record.batches if not seen.memory.has(one.ledger, one.entry))
    return tuple(one for one in behind if one.ledger in listed)


def _remembered(known: Protection, seen: CursorSeen) -> Protection:
    same = seen.record.id.is_same(known.record)
    memory = seen.memory if same else None
    return Protection(seen.incarnation, seen.record.id, memory, 0, known.tries if same else 0, known.parts_in)
