"""What a broker hides: aborted transactions, markers, open transactions; how it shows and how it is explained."""

from contextlib import closing

import pytest

from integration.pulsar.waiting import positions, read, until
from offloader.model import MIB, EntryRange, Gap, GapKind, Position

pytestmark = pytest.mark.pulsar


@pytest.fixture
def pinned(topic, pins):
    pins.open(topic)
    return topic


def delivered(source, topic, count):
    """What a reader gets: so many entries, however late, and what comes within a while behind them."""
    with closing(source.open(topic, 0, 0, max_bytes=MIB)) as reader:
        return positions([*read(reader, count), *reader.read(1)])


def end(pins, topic):
    return pins.ends([topic])[topic]


def confirmed(admin, topic):
    return admin.topic_info(topic).last_confirmed


def test_the_end_is_the_last_entry_that_readers_get(pinned, pins, admin, source, transactions):
    """GET_LAST_MESSAGE_ID stops before an open transaction and passes over what is hidden; the managed ledger does
    not."""
    name = str(pinned)
    ledger, _ = transactions.send(name, b"plain 0")
    transaction = transactions.begin(name)
    transactions.send(name, b"open 1", transaction)
    assert (end(pins, pinned).last, confirmed(admin, pinned)) == ((ledger, 0), (ledger, 1))
    transactions.send(name, b"plain 2")
    assert end(pins, pinned).last == (ledger, 0)
    assert delivered(source, pinned, 1) == [(ledger, 0)]
    assert source.explain(pinned, EntryRange(ledger, 1, 3), limit=10) == ((), 1), "it may still be committed"
    transactions.end(transaction, commit=False)
    until(lambda: end(pins, pinned).last == (ledger, 2))
    assert confirmed(admin, pinned) == (ledger, 3)
    assert delivered(source, pinned, 2) == [(ledger, 0), (ledger, 2)]
    assert source.explain(pinned, EntryRange(ledger, 1, 2), limit=10) == (
        (Gap(ledger, 1, 2, kind=GapKind.ABORTED),),
        None,
    )
    assert source.explain(pinned, EntryRange(ledger, 3, 4), limit=10) == (
        (Gap(ledger, 3, 4, kind=GapKind.MARKER),),
        None,
    )


def test_a_committed_transaction_is_delivered_without_its_marker(pinned, pins, source, transactions):
    name = str(pinned)
    transaction = transactions.begin(name)
    sent = [transactions.send(name, b"t", transaction) for _ in range(3)]
    assert delivered(source, pinned, 0) == []
    assert end(pins, pinned).last is None
    transactions.end(transaction, commit=True)
    until(lambda: end(pins, pinned).last == sent[-1])
    assert delivered(source, pinned, len(sent)) == sent
    marker = (sent[-1][0], sent[-1][1] + 1)
    assert source.explain(pinned, EntryRange(*marker, marker[1] + 1), limit=10) == (
        (Gap(*marker, marker[1] + 1, kind=GapKind.MARKER),),
        None,
    )


def test_a_topic_with_nothing_but_aborted_entries_seems_empty_and_can_be_acknowledged(
    pinned, pins, admin, source, transactions
):
    name = str(pinned)
    transaction = transactions.begin(name)
    ledger, _ = [transactions.send(name, b"t", transaction) for _ in range(20)][-1]
    transactions.end(transaction, commit=False)
    until(lambda: confirmed(admin, pinned) == (ledger, 20))
    explained = (Gap(ledger, 0, 20, kind=GapKind.ABORTED), Gap(ledger, 20, 21, kind=GapKind.MARKER))
    until(lambda: source.explain(pinned, EntryRange(ledger, 0, 21), limit=100) == (explained, None))
    assert end(pins, pinned).last is None
    assert delivered(source, pinned, 0) == []
    assert source.explain(pinned, EntryRange(ledger, 0, 21), limit=5) == ((Gap(ledger, 0, 5, kind=GapKind.ABORTED),), 5)
    pins.acknowledge(pinned, Position(0, ledger, 20))
    assert end(pins, pinned).mark_delete == (ledger, 20)


def test_entries_that_readers_get_or_that_are_not_there_are_not_explained(pinned, source, transactions):
    ledger, entry = transactions.send(str(pinned), b"plain")
    assert source.explain(pinned, EntryRange(ledger, entry, entry + 1), limit=10) == ((), entry)
    assert source.explain(pinned, EntryRange(ledger, entry + 1, entry + 2), limit=10) == ((), entry + 1)
    assert source.explain(pinned, EntryRange(ledger + 1000, 0, 1), limit=10) == ((), 0)


def test_acknowledging_the_entry_before_a_gap_does_not_acknowledge_the_gap(pinned, pins, transactions):
    """It would if our subscription had been sent entries: the broker acknowledges what it filters while it
    dispatches."""
    name = str(pinned)
    ledger, _ = transactions.send(name, b"plain 0")
    transaction = transactions.begin(name)
    transactions.send(name, b"aborted 1", transaction)
    transactions.end(transaction, commit=False)
    last = transactions.send(name, b"plain 3")
    until(lambda: end(pins, pinned).last == last)
    pins.acknowledge(pinned, Position(0, ledger, 0))
    assert end(pins, pinned).mark_delete == (ledger, 0)
