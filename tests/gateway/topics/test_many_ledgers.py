"""An acknowledgement costs the same in a topic of many ledgers as in a topic of one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

import pytest

from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.gateway.core.events import EntryAck
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.acks import SubscriptionAcks, position_of
from offloader.model import Place
from offloader.storage.memory import MemoryStore
from tests.archive.support import Archive, message
from tests.format.support import Stored
from tests.gateway.entries.topics import opened

BEFORE_ALL = (-1, -1)

ENTRIES, SEGMENT = 5_000, 500
MOST_TIMES_THE_COST = 5.0  # of one ledger; a call that goes through all ledgers costs several hundred times as much


def topic(per_ledger: int) -> TopicEntries:
    """A topic of `ENTRIES` entries in ledgers of this length."""
    archive = Archive()
    archive.claim()
    data = message("m")
    for begin in range(0, ENTRIES, SEGMENT):
        places = [divmod(number, per_ledger) for number in range(begin, begin + SEGMENT)]
        closed = {ledger: per_ledger - 1 for ledger, _ in places}
        archive.add([Stored(ledger, entry, data) for ledger, entry in places], closed=closed)
    return opened(archive.store)


def new_cursor(entries: TopicEntries) -> DurableCursor:
    begin, tokens = position_of(BEFORE_ALL, entries.ledgers()), (f"token-{number}" for number in itertools.count())
    return DurableCursor.open(MemoryStore(), "s/", lambda: FirstState(begin), lambda: next(tokens))


def acknowledged(entries: TopicEntries, order: Iterable[Place], *, up_to: bool = False) -> float:
    """Seconds of CPU that it takes to acknowledge the entries one by one, in this order, with a flush now and then."""
    cursor = new_cursor(entries)
    acks, seconds = SubscriptionAcks(cursor), 0.0
    for number, place in enumerate(order):
        if number == ENTRIES // 2:
            cursor.flush()
        began = time.thread_time()
        ledgers = entries.ledgers()
        if up_to:
            acks.apply_up_to(place, 0, ledgers, {})
        else:
            acks.apply([EntryAck(place)], ledgers, {})
        acks.advance(ledgers, entries.absent_for_now())
        seconds += time.thread_time() - began
    assert cursor.mark_delete.place == entries.end().last
    return seconds


@pytest.mark.parametrize("kind", ["one by one", "odd ones first", "cumulative"])
def test_the_cost_of_an_acknowledgement_does_not_depend_on_the_number_of_ledgers(kind: str) -> None:
    seconds = {}
    for per_ledger in (ENTRIES, 1):
        entries, places = topic(per_ledger), [divmod(number, per_ledger) for number in range(ENTRIES)]
        order = places if kind != "odd ones first" else places[1::2] + places[::2]
        seconds[per_ledger] = acknowledged(entries, order, up_to=kind == "cumulative")
    print(f"{kind}: {seconds[ENTRIES]:.2f} s of CPU with one ledger, {seconds[1]:.2f} s with {ENTRIES}")
    assert seconds[1] < MOST_TIMES_THE_COST * seconds[ENTRIES]


def test_reading_and_looking_up_places_do_not_depend_on_the_number_of_ledgers() -> None:
    """What was read is compared with what is acknowledged, a few entries at a time."""
    seconds = {}
    for per_ledger in (ENTRIES, 1):
        entries = topic(per_ledger)
        cursor = new_cursor(entries)
        acks, after, found = SubscriptionAcks(cursor), BEFORE_ALL, 0
        seconds[per_ledger] = 0.0
        while (read := entries.read(after, 1, 1 << 20)).covered is not None:
            began = time.thread_time()
            found += len(acks.not_acknowledged(read, after, entries.ledgers(), entries.absent_for_now()).entries)
            after = position_of(read.covered, entries.ledgers()).place
            seconds[per_ledger] += time.thread_time() - began
        assert found == ENTRIES
    print(f"read: {seconds[ENTRIES]:.2f} s of CPU with one ledger, {seconds[1]:.2f} s with {ENTRIES}")
    assert seconds[1] < MOST_TIMES_THE_COST * seconds[ENTRIES]
