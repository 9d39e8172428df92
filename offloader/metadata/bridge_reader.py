"""Bridge logs for those who only read: which ledgers brokers have, as rounds have proven it."""

from __future__ import annotations

import threading
from collections import OrderedDict

from offloader.metadata.bridge_log import BridgeLog
from offloader.metadata.bridged import NOTHING_BRIDGED, BridgedLedgers, HandedLedger
from offloader.metadata.bridges import BridgeState
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

MOST_LEDGERS = 200_000  # that are remembered, each by some 400 bytes


class BridgeReader:
    """The bridge logs of a root, for reading. A log that was read before costs a look whether it has grown. Safe to use
    from several threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._log = BridgeLog(store, str)  # nothing is appended
        self._known: OrderedDict[TopicName, BridgedLedgers] = OrderedDict()
        self._lock = threading.Lock()

    def slot(self, topic: TopicName) -> int:
        """The slot that the log's next record takes: it changes with everything that is recorded. A few requests,
        however long the log is. Raises as `of`."""
        return self._log.load(topic).slot

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
        ledgers, let_go = dict[int, HandedLedger](), set(known.let_go)
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
                ledgers.setdefault(each.ledger, HandedLedger(past.incarnation, each, past.finished.bucket))
        open_ = (each for each in (state.round, state.leaving) if each is not None)
        under_way = frozenset(ledger.uuid for each in open_ for ledger in each.ledgers)
        together, last = {**known.ledgers, **ledgers}, newest or known.newest
        return BridgedLedgers(slot, together, frozenset(let_go), under_way, state, last)
