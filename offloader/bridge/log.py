"""A topic's bridge log: its records to and from bytes, in the bucket, and for those who only read.

No record is ever removed: its number is a fence. Each holds all of the state, so a reader needs the newest one only;
those that finish a round or let a ledger go are chained backwards."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace

from offloader._proto import metadata_pb2 as pb
from offloader.bridge.core.rounds import (
    NOTHING_BRIDGED,
    BridgedCopy,
    BridgedLedger,
    BridgedLedgers,
    BridgeHead,
    BridgeRound,
    BridgeState,
    UnbridgedLedger,
)
from offloader.errors import DamagedRecordError, ObjectNotFoundError, VersionConflictError
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.layout import bridge_folder
from offloader.metadata.log import NumberedLog, read_record
from offloader.metadata.message_codec import add_messages, message_of, read_value
from offloader.metadata.value_codec import damage_of
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

add_messages(
    {
        BridgedLedger: pb.BridgedLedger,
        BridgeRound: pb.BridgeRound,
        BridgeState: pb.BridgeState,
        UnbridgedLedger: pb.UnbridgedLedger,
    },
    {},
)

PAGE = 1000  # keys that one listing gives: the newest record of a longer log is searched for first
MOST_LEDGERS = 200_000  # that are remembered, each by some 400 bytes


def encode_bridge(token: str, slot: int, state: BridgeState) -> bytes:
    """A record's bytes, as it stands in its slot."""
    return wrap(token, pb.Body(bridge=message_of(state, slot=slot)))


def decode_bridge(topic: TopicName, slot: int, key: str, data: bytes) -> BridgeState:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    message = unwrap_kind(key, data, "bridge").body.bridge
    with damage_of(key):
        state = read_value(BridgeState, message)
    if (state.topic, message.slot) != (topic, slot):
        raise DamagedRecordError(f"{key}: it is record {message.slot} of the bridge of {state.topic}")
    if state.former >= slot:
        raise DamagedRecordError(f"{key}: it says that record {state.former} is before it")
    return state


class BridgeLog:
    """The bridge logs of a root. Safe to use from several threads. Calls raise what the store raises."""

    def __init__(self, store: ObjectStore, new_token: Callable[[], str]) -> None:
        self._store = store
        self._new_token = new_token

    def load(self, topic: TopicName) -> BridgeHead:
        """What is recorded now; a few requests, however long the log is. Raises DamagedRecordError,
        FormatVersionError."""
        log = self._log(topic)
        first = log.nearly_all(PAGE)
        slots = log.slots(after=first - 1)
        for expected, slot in enumerate(slots, first):
            if slot != expected:
                raise DamagedRecordError(f"{log.key(expected)} is missing, though {log.key(slot)} is there")
        newest = first + len(slots) - 1
        return BridgeHead(newest + 1, self._read(topic, newest) if newest >= 0 else None)

    def is_open(self, topic: TopicName) -> bool:
        """Whether a round is not over, or objects are still to go. Raises as `load`."""
        state = self.load(topic).state
        return state is not None and state.is_open

    def append(self, head: BridgeHead, state: BridgeState) -> BridgeHead:
        """Record a state behind the newest one that the caller knows.

        Raises VersionConflictError where somebody else has recorded one meanwhile; OutcomeUnknownError, after which the
        log is to be loaded again: it tells whether the state is there."""
        linked = replace(state, former=last_finished(head))
        log = self._log(state.topic)
        if log.append(head.slot, encode_bridge(self._new_token(), head.slot, linked)) is not None:
            raise VersionConflictError(f"{log.key(head.slot)} is there already: somebody else goes on with this bridge")
        return BridgeHead(head.slot + 1, linked)

    def finished_rounds(self, topic: TopicName) -> Iterator[BridgeState]:
        """The records that finish a round or let a ledger go, of all incarnations, the newest first; a request each.
        Raises DamagedRecordError, FormatVersionError."""
        head = self.load(topic)
        state = head.state
        if state is not None and not _is_chained(state):
            state = self._chained(topic, state.former)
        while state is not None:
            yield state
            state = self._chained(topic, state.former)

    def finishing(self, topic: TopicName, slot: int) -> BridgeState:
        """The record there, one that finishes a round or lets a ledger go. Raises DamagedRecordError,
        FormatVersionError."""
        state = self._read(topic, slot)
        if not _is_chained(state):
            raise DamagedRecordError(f"{self._log(topic).key(slot)}: it finishes no round, though a later one says so")
        return state

    def _chained(self, topic: TopicName, slot: int) -> BridgeState | None:
        return None if slot < 0 else self.finishing(topic, slot)

    def _read(self, topic: TopicName, slot: int) -> BridgeState:
        key = self._log(topic).key(slot)
        try:
            return decode_bridge(topic, slot, key, read_record(self._store, key))
        except ObjectNotFoundError as error:
            raise DamagedRecordError(f"{key} is missing; nobody ever removes it") from error

    def _log(self, topic: TopicName) -> NumberedLog:
        """A new one each time: whoever appends has loaded before, and knows that an outcome was unknown."""
        return NumberedLog(self._store, bridge_folder(topic))


def last_finished(head: BridgeHead) -> int:
    """The slot of the newest record that finishes a round or lets a ledger go; -1: there is none."""
    if head.state is None:
        return -1
    return head.slot - 1 if _is_chained(head.state) else head.state.former


def _is_chained(state: BridgeState) -> bool:
    return state.finished is not None or state.let_go is not None


class BridgeReader:
    """The bridge logs of a root, for reading. A log that was read before costs a look whether it has grown. Safe to use
    from several threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._log = BridgeLog(store, str)  # nothing is appended
        self._known: OrderedDict[TopicName, BridgedLedgers] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, topic: TopicName) -> BridgedLedgers:
        """As it is now. Raises DamagedRecordError, FormatVersionError, what the store raises."""
        known = self._known.get(topic, NOTHING_BRIDGED)
        slot, state = self._log.load(topic)
        if state is None:
            return NOTHING_BRIDGED
        if slot == known.slot:
            with self._lock:
                if topic in self._known:
                    self._known.move_to_end(topic)
            return known
        found = self._grown(known if slot > known.slot else NOTHING_BRIDGED, slot, state)
        with self._lock:
            self._known[topic] = found
            self._known.move_to_end(topic)
            left = sum(len(each.ledgers) for each in self._known.values())
            while left > MOST_LEDGERS and len(self._known) > 1:
                left -= len(self._known.popitem(last=False)[1].ledgers)
        return found

    def _grown(self, known: BridgedLedgers, slot: int, state: BridgeState) -> BridgedLedgers:
        """Only the rounds that were finished since are read. One that ends meanwhile is found, too."""
        ledgers, let_go = dict[int, BridgedCopy](), set(known.let_go)
        newest = None
        for past in self._log.finished_rounds(state.topic):
            if past.let_go is not None:
                let_go.add(past.let_go.ledger)
            if past.finished is None:
                continue
            place = past.incarnation, past.finished.number
            if place == known.newest:
                break
            newest = newest or place
            for each in past.finished.ledgers:
                ledgers.setdefault(each.ledger, BridgedCopy(past.incarnation, each, past.finished.bucket))
        open_ = (each for each in (state.round, state.leaving) if each is not None)
        under_way = frozenset(ledger.uuid for each in open_ for ledger in each.ledgers)
        together, last = {**known.ledgers, **ledgers}, newest or known.newest
        return BridgedLedgers(slot, together, frozenset(let_go), under_way, state, last)
