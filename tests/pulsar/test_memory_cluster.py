"""The in-memory Pulsar does what the real one was seen to do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import BrokerUnavailableError, SubscriptionBusyError, TopicMovedError, TopicNotFoundError
from offloader.model import EntryRange, Gap, GapKind, Position, TopicName
from tests.fakes.cluster import MemoryCluster

TOPIC = TopicName.parse("persistent://public/ns/a")


@pytest.fixture
def cluster():
    cluster = MemoryCluster(seed=7)
    cluster.create(TOPIC)
    return cluster


def drain(cluster, ledger=0, entry=0):
    reader = cluster.source.open(TOPIC, ledger, entry, max_bytes=1000)
    found = []
    while batch := reader.read(1):
        found += batch
    return found


def test_an_empty_topic_has_no_end_and_an_open_ledger(cluster):
    info = cluster.admin.topic_info(TOPIC)
    assert cluster.pins().open(TOPIC).last is None
    assert [span.last for span in info.ledgers.spans] == [None]
    assert info.last_confirmed is None


def test_the_pin_keeps_closed_ledgers_until_they_are_acknowledged(cluster):
    pins = cluster.pins()
    first = pins.open(TOPIC).mark_delete[0]
    ledger, entry = cluster.produce(TOPIC, b"x")
    assert ledger == first
    cluster.roll(TOPIC)
    assert ledger in cluster.admin.topic_info(TOPIC).ledgers
    pins.acknowledge(TOPIC, Position(0, ledger, entry))
    assert ledger in cluster.admin.topic_info(TOPIC).ledgers, (
        "the mark-delete is still in it: it goes at the next check of retention"
    )
    cluster.check_retention(TOPIC)
    assert ledger not in cluster.admin.topic_info(TOPIC).ledgers
    assert cluster.mark_delete(TOPIC) == (ledger, entry)
    assert [e.data for e in cluster.entries(TOPIC)] == [b"x"]


def test_an_acknowledgement_past_the_last_entry_changes_nothing(cluster):
    pins = cluster.pins()
    before = pins.open(TOPIC).mark_delete
    ledger, entry = cluster.produce(TOPIC, b"x")
    pins.acknowledge(TOPIC, Position(0, ledger, entry + 1))
    assert cluster.mark_delete(TOPIC) == before
    cluster.roll(TOPIC)
    pins.acknowledge(TOPIC, Position(0, cluster.ledgers(TOPIC).spans[-1].ledger, -1))
    assert cluster.mark_delete(TOPIC) == before


def test_without_a_pin_closed_ledgers_vanish(cluster):
    ledger, _ = cluster.produce(TOPIC, b"x")
    cluster.roll(TOPIC)
    assert ledger not in cluster.admin.topic_info(TOPIC).ledgers
    assert drain(cluster, ledger) == []


def test_hidden_entries_are_gaps_that_can_be_explained(cluster):
    cluster.produce(TOPIC, b"a")
    ledger, first = cluster.add_hidden(TOPIC, GapKind.ABORTED)
    cluster.add_hidden(TOPIC, GapKind.MARKER)
    cluster.produce(TOPIC, b"b")
    assert [e.data for e in drain(cluster)] == [b"a", b"b"]
    aborted, marker = (
        Gap(ledger, first, first + 1, kind=GapKind.ABORTED),
        Gap(ledger, first + 1, first + 2, kind=GapKind.MARKER),
    )
    assert cluster.source.explain(TOPIC, EntryRange(ledger, first, first + 2), limit=9) == ((aborted, marker), None)
    assert cluster.source.explain(TOPIC, EntryRange(ledger, first, first + 2), limit=1) == ((aborted,), first + 1)
    assert cluster.source.explain(TOPIC, EntryRange(ledger, first, first + 3), limit=9) == (
        (aborted, marker),
        first + 2,
    )


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_stops_delivery_until_it_ends(cluster, commit):
    before = cluster.produce(TOPIC, b"a")
    cluster.add_pending(TOPIC, b"t")
    after = cluster.produce(TOPIC, b"b")
    pins = cluster.pins()
    assert pins.open(TOPIC).last == before
    assert [e.data for e in drain(cluster)] == [b"a"]
    cluster.resolve(TOPIC, commit=commit)
    assert pins.ends([TOPIC])[TOPIC].last == after
    assert [e.data for e in drain(cluster)] == ([b"a", b"t", b"b"] if commit else [b"a", b"b"])


def test_an_unload_breaks_readers_off_and_closes_the_ledger(cluster):
    pins = cluster.pins()
    pins.open(TOPIC)
    cluster.produce(TOPIC, b"a")
    reader = cluster.source.open(TOPIC, 0, 0, max_bytes=10)
    cluster.unload(TOPIC)
    with pytest.raises(TopicMovedError):
        reader.read(1)
    assert [span.last for span in cluster.admin.topic_info(TOPIC).ledgers.spans] == [0, None]
    created = cluster.admin.topic_info(TOPIC).created
    cluster.unload(TOPIC)
    assert [span.last for span in cluster.admin.topic_info(TOPIC).ledgers.spans] == [0, None]
    assert cluster.admin.topic_info(TOPIC).created == created
    assert isinstance(pins.ends([TOPIC])[TOPIC].mark_delete, tuple)


def test_a_topic_made_again_is_another_incarnation(cluster):
    created = cluster.admin.topic_info(TOPIC).created
    cluster.produce(TOPIC, b"old")
    cluster.delete(TOPIC)
    with pytest.raises(TopicNotFoundError):
        cluster.admin.topic_info(TOPIC)
    cluster.create(TOPIC)
    cluster.produce(TOPIC, b"new")
    assert cluster.admin.topic_info(TOPIC).created != created
    assert [e.data for e in cluster.entries(TOPIC)] == [b"old", b"new"]
    assert len({e.created for e in cluster.entries(TOPIC)}) == 2


def test_one_holder_at_a_time(cluster):
    first, second = cluster.pins(), cluster.pins()
    first.open(TOPIC)
    with pytest.raises(SubscriptionBusyError):
        second.open(TOPIC)
    first.close()
    second.open(TOPIC)


def test_a_planned_fault_hits_its_call_and_topic_once(cluster):
    pins = cluster.pins()
    pins.open(TOPIC)
    cluster.faults.add("pins.acknowledge", lambda: BrokerUnavailableError("gone"), topic=TOPIC, effect=True)
    place = cluster.produce(TOPIC, b"a")
    with pytest.raises(BrokerUnavailableError):
        pins.acknowledge(TOPIC, Position(0, *place))
    assert cluster.mark_delete(TOPIC) == place
    pins.acknowledge(TOPIC, Position(0, *place))
    assert cluster.faults.count("pins.acknowledge", TOPIC) == 2


@given(st.lists(st.sampled_from(["produce", "roll", "unload", "hide"]), max_size=30), st.integers(0, 1000))
def test_a_reader_delivers_exactly_what_can_be_delivered_in_order(steps, seed):
    cluster = MemoryCluster(seed=seed, entries_per_ledger=5)
    cluster.create(TOPIC)
    cluster.pins().open(TOPIC)
    for number, step in enumerate(steps):
        if step == "produce":
            cluster.produce(TOPIC, b"%d" % number)
        elif step == "hide":
            cluster.add_hidden(TOPIC, GapKind.MARKER)
        else:
            getattr(cluster, step)(TOPIC)
    expected = [(e.ledger, e.entry, e.data) for e in cluster.entries(TOPIC) if e.delivered]
    assert drain(cluster) == expected
    assert expected == sorted(expected)
