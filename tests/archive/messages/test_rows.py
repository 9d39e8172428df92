"""Every message of an archive's entries becomes the row that a consumer would see, by each way of reading."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.messages.columns import message_batches
from offloader.archive.messages.filters import MessageFilter
from tests.archive.messages.encoder import TOPIC, Encoded, Producer, Sent, batch, run_of, single
from tests.archive.messages.rows import COLUMNS, by_columns, by_messages, expected, pruned
from tests.archive.messages.streams import cut_into_runs, streams


@given(st.data(), streams())
def test_messages_and_columns_are_what_was_sent(data: st.DataObject, entries: list[Encoded]) -> None:
    runs = data.draw(cut_into_runs([entry.data for entry in entries]))
    assert by_messages(runs) == expected(entries)
    assert by_columns(runs) == expected(entries)


@given(st.data(), streams(compacted=False), st.lists(st.sampled_from(COLUMNS), unique=True))
def test_fewer_columns_have_the_same_rows(data: st.DataObject, entries: list[Encoded], columns: list[str]) -> None:
    runs = data.draw(cut_into_runs([entry.data for entry in entries]))
    assert sum(found.num_rows for found in message_batches(runs, TOPIC, columns)) == len(expected(entries))
    if columns:
        assert by_columns(runs, columns=columns) == pruned(expected(entries), columns)


@given(
    st.data(),
    streams(compacted=False),
    st.none() | st.sampled_from([1, 1_700_000_000_000]),
    st.none() | st.sampled_from([1, 1_700_000_000_000]),
    st.none() | st.frozensets(st.sampled_from([b"", b"k", b"key-1"])),
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=1), max_size=2),
)
def test_a_filter_leaves_what_matches(data, entries, published_from, published_to, keys, properties) -> None:
    def matches(row):
        return (
            (published_from is None or row["__publishTime"] >= published_from * 1000)
            and (published_to is None or row["__publishTime"] <= published_to * 1000)
            and (keys is None or row["__key"] in keys)
            and properties.items() <= dict(row["__messageProperties"]).items()
        )

    wanted = MessageFilter(published_from, published_to, keys, properties)
    runs = data.draw(cut_into_runs([entry.data for entry in entries]))
    rows = [row for row in expected(entries) if matches(row)]
    assert by_columns(runs, wanted=wanted) == rows
    assert by_columns(runs, columns=["__entryId"], wanted=wanted) == pruned(rows, ["__entryId"])


@given(st.data(), streams(), st.integers(1, 5), st.integers(1, 5000))
def test_batches_are_bounded(data: st.DataObject, entries: list[Encoded], max_rows: int, max_bytes: int) -> None:
    runs = data.draw(cut_into_runs([entry.data for entry in entries]))
    assert by_columns(runs, max_rows=max_rows, max_bytes=max_bytes) == expected(entries)


def test_a_field_that_is_written_out_of_order_is_read_as_protobuf_reads_it() -> None:
    entry = batch(Producer(), [Sent(b"one", key=b"k"), Sent(b"two")])
    first = entry.payload[4 : 4 + entry.payload[3]]
    turned = first[3:] + first[:3]  # the key behind the rest
    moved = entry.payload.replace(first, turned)
    assert moved != entry.payload
    odd = Encoded(entry.metadata, moved, entry.rows, entry.messages)
    around = single(Producer(), Sent(b"before"))
    entries = [around, odd, around]
    assert by_columns([run_of([e.data for e in entries])]) == expected(entries)
