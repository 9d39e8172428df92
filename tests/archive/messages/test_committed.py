"""Messages of aborted transactions are none, wherever the abort was written and whichever way they are read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.messages.columns import message_batches
from offloader.archive.messages.entries import committed
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.unpack import Unpacker
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.snapshot import TopicSnapshot
from offloader.archive.topic import ArchivedTopic
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER
from offloader.model import Transaction
from offloader.storage.memory import MemoryStore
from tests.archive.messages.encoder import TOPIC, run_of
from tests.archive.support import Archive
from tests.format.support import Stored, broker_metadata, checksummed, plain

LARGE = (1 << 64) - 1
_ids = st.tuples(st.sampled_from([0, 1, LARGE]), st.sampled_from([0, 1, 2, LARGE]))


def entry(
    transaction: Transaction | None = None,
    text: bytes = b"",
    *,
    marker: int | None = None,
    name: str = "p",
    make=checksummed,
) -> bytes:
    metadata = MessageMetadata(producer_name=name, sequence_id=0, publish_time=1)
    if transaction is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = transaction
    if marker is not None:
        metadata.marker_type = marker
    return make(metadata, text)


_entries = st.builds(
    lambda front, transaction, name, make: (front + entry(transaction, b"x", name=name, make=make), transaction),
    st.sampled_from([b"", broker_metadata(time=5, index=7)]),
    st.none() | _ids,
    st.text(max_size=600),
    st.sampled_from([checksummed, plain]),
)


@given(st.lists(_entries, max_size=20), st.sets(_ids, max_size=3))
def test_just_the_entries_of_aborted_transactions_are_left_out(entries: list, aborted: set[Transaction]) -> None:
    kept = [
        number for number, (_, transaction) in enumerate(entries) if transaction is None or transaction not in aborted
    ]
    found = [
        (run.first + number, bytes(run.data[run.bounds[2 * number] : run.bounds[2 * number + 1]]))
        for run in committed(run_of([data for data, _ in entries]), aborted)
        for number in range(run.count)
    ]
    assert found == [(number, entries[number][0]) for number in kept]


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_what_cannot_be_parsed_is_left_to_whoever_unpacks_it(entries: list[bytes]) -> None:
    assert sum(run.count for run in committed(run_of(entries), {(0, 0)})) == len(entries)


def archive(store: MemoryStore | None = None) -> Archive:
    """Two transactions, of which one is aborted two segments later, and one that nobody has ended."""
    made = Archive(store or MemoryStore())
    made.claim(ledger=1)
    texts = [
        (None, b"plain"),
        ((0, 1), b"committed"),
        ((0, 2), b"aborted"),
        ((0, 2), b"aborted, too"),
        ((0, 3), b"open"),
    ]
    made.add([Stored(1, number, entry(*said)) for number, said in enumerate(texts)])
    made.add([Stored(1, 5, entry((0, 1), marker=COMMIT_MARKER)), Stored(1, 6, entry((0, 2), b"the last"))])
    made.add([Stored(1, 7, entry((0, 2), marker=ABORT_MARKER)), Stored(1, 8, entry(None, b"plain again"))])
    return made


READABLE = [b"plain", b"committed", b"open", b"plain again"]


def by_message(topic: ArchivedTopic) -> Iterator[bytes | None]:
    return (message.value for message in topic.messages())


def by_batch(topic: ArchivedTopic) -> Iterator[bytes | None]:
    return (value for batch in topic.record_batches(["value"]) for value in batch.column(0).to_pylist())


@pytest.mark.parametrize("read", [by_message, by_batch])
def test_an_abort_in_a_later_segment_counts(read) -> None:
    made = archive()
    topic = ArchivedTopic(Stores.of(made.store), TopicRecords(TopicSnapshot.of(made.catalog)))
    assert made.catalog.aborted == {(0, 2)}
    assert list(read(topic)) == READABLE
    assert len(list(topic.entries())) == 9, "as BookKeeper holds them"


def test_aborts_that_become_known_while_it_is_read() -> None:
    known: set[Transaction] = set()
    options = UnpackOptions(aborted=lambda: known)
    runs = [run_of([entry((0, 2), b"1")]), run_of([entry((0, 2), b"2")], 1)]

    def read() -> Iterator:
        yield runs[0]
        known.add((0, 2))
        yield runs[1]

    batches = message_batches(read(), TOPIC, ["value"], options=options, gather=False)
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == [b"1"]
    unpacker = Unpacker(options)
    known.clear()
    assert [message.value for run in read() for message in unpacker.messages(run)] == [b"1"]
