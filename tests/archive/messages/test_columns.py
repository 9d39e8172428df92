"""Arrow record batches: the columns pulsar-spark users know, no work for what is not asked for, bounded memory."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.messages import contents
from offloader.archive.messages.columns import entry_batches, message_batches
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA
from tests.archive.messages.encoder import LEDGER, TOPIC, Encoded, Producer, Sent, batch, run_of, single
from tests.archive.messages.rows import by_columns, by_messages
from tests.archive.messages.streams import cut_into_runs, streams

PACKED = batch(Producer(compression=3), [Sent(b"one", key=b"k"), Sent(b"two")])
ENTRY_IN_BETWEEN = single(Producer(), Sent(b"three"))


def test_pulsar_sparks_columns_have_its_names_and_types() -> None:
    names = ["value", "__key", "__topic", "__messageId", "__publishTime", "__eventTime", "__messageProperties"]
    time, text = pa.timestamp("us", tz="UTC"), pa.string()
    types = [pa.binary(), pa.binary(), text, pa.binary(), time, time, pa.map_(text, text)]
    assert MESSAGE_SCHEMA.names[:7] == names
    assert MESSAGE_SCHEMA.types[:7] == types


def test_batches_have_the_schema_that_was_asked_for() -> None:
    (found,) = message_batches([run_of([PACKED.data])], TOPIC)
    assert found.schema == MESSAGE_SCHEMA
    (found,) = message_batches([run_of([PACKED.data])], TOPIC, ["__key", "value"])
    assert found.schema == pa.schema([("__key", pa.binary()), ("value", pa.binary())])


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        list(message_batches([run_of([PACKED.data])], TOPIC, ["nothing"]))


@pytest.mark.parametrize("columns", [[], ["__publishTime"], ["__messageId", "__key", "__producerName"]])
def test_what_no_column_needs_is_not_decompressed_but_for_batches(
    columns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = single(Producer(compression=3), Sent(b"one"))
    monkeypatch.setattr(contents, "decompress", None)
    found = list(message_batches([run_of([packed.data, ENTRY_IN_BETWEEN.data])], TOPIC, columns))
    assert sum(b.num_rows for b in found) == 2
    for entry, asked in ((packed, [*columns, "value"]), (PACKED, columns)):
        with pytest.raises(TypeError):
            list(message_batches([run_of([entry.data])], TOPIC, asked))


def test_entries_of_another_time_are_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "decompress", None)
    wanted = MessageFilter(published_from=Producer().publish_time + 1)
    assert list(message_batches([run_of([PACKED.data])], TOPIC, wanted=wanted)) == []


def test_a_filter_opens_what_it_needs() -> None:
    wanted = MessageFilter(keys=frozenset({b"k"}))
    assert by_columns([run_of([PACKED.data])], columns=["__batchIndex"], wanted=wanted) == [{"__batchIndex": 0}]


def test_what_expands_much_comes_in_several_batches() -> None:
    zeros = single(Producer(compression=3), Sent(bytes(1_000_000)))
    found = list(message_batches([run_of([zeros.data] * 10)], TOPIC, ["value"], max_bytes=2_000_000))
    assert [b.num_rows for b in found] == [2] * 5
    many = batch(Producer(compression=3), [Sent(b"x")] * 1000)
    found = list(message_batches([run_of([many.data])], TOPIC, ["value"], max_rows=300))
    assert [b.num_rows for b in found] == [300, 300, 300, 100]


def test_text_that_is_no_utf8_is_replaced() -> None:
    entry = single(Producer(name="p"), Sent(b"x", properties=(("aa", "bb"),)))
    data = entry.data.replace(b"\x0a\x01p", b"\x0a\x01\xff").replace(b"bb", b"\xfeb")
    run = run_of([data])
    (row,) = by_columns([run])
    assert (row["__producerName"], row["__messageProperties"]) == ("�", [("aa", "�b")])
    assert by_messages([run]) == [row]


def test_times_that_do_not_fit_are_null() -> None:
    """An event time in nanoseconds by mistake."""
    run = run_of([single(Producer(publish_time=2**63), Sent(b"x", event_time=1_700_000_000_000_000_000)).data])
    (row,) = by_columns([run])
    assert (row["__publishTime"], row["__eventTime"]) == (None, None)
    assert by_messages([run]) == [row]


def test_of_a_property_that_is_there_twice_the_last_counts() -> None:
    sent = Sent(b"x", properties=(("a", "1"), ("b", "2"), ("a", "3")))
    (row,) = by_columns([run_of([single(Producer(), sent).data])])
    assert row["__messageProperties"] == [("a", "3"), ("b", "2")]


def test_a_key_that_is_no_base64_is_left_as_it_is() -> None:
    entry = single(Producer(), Sent(b"x", key=b"no base64!"))
    entry.metadata.partition_key_b64_encoded = True
    run = run_of([entry.data])
    assert [row["__key"] for row in by_columns([run])] == [b"no base64!"]
    assert by_messages([run]) == by_columns([run])


@given(st.data(), streams(), st.lists(st.sampled_from(ENTRY_SCHEMA.names), unique=True))
def test_entries_are_what_was_stored(data: st.DataObject, entries: list[Encoded], columns: list[str]) -> None:
    stored = [entry.data for entry in entries] + [b"opaque"]
    runs = data.draw(cut_into_runs(stored))
    rows = [
        {"topic": str(TOPIC), "ledgerId": LEDGER, "entryId": n, "data": entry, "publishTime": _publish_time(entries, n)}
        for n, entry in enumerate(stored)
    ]
    found = [row for b in entry_batches(runs, TOPIC, max_rows=3) for row in _times_as_numbers(b).to_pylist()]
    assert found == rows
    assert sum(b.num_rows for b in entry_batches(runs, TOPIC, columns)) == len(stored)


def _publish_time(entries: list[Encoded], number: int) -> int | None:
    return entries[number].metadata.publish_time * 1000 if number < len(entries) else None


def _times_as_numbers(found: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in found.columns]
    return pa.RecordBatch.from_arrays(arrays, names=found.schema.names)
