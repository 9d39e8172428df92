"""Which entries an object has, by its own bytes: of anything that is none of ours, nothing is believed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.lifecycle.bucket.extents import NoExtent, ObjectSpan, of_data, of_index, of_record, together
from offloader.metadata import layout
from offloader.metadata.catalog_codec import encode_catalog
from tests.archive.ledgers.support import messages
from tests.archive.support import TOPIC
from tests.format.stock import write_blocks

from .support import a_uuid, archive, header, segment_of

NO_END = 2**63 - 1

RECORD = layout.record_key(TOPIC, a_uuid(1))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer(data: bytes):
    assert of_data(data) is NoExtent.JUNK
    assert of_index(data) is NoExtent.JUNK
    assert of_record(TOPIC, RECORD, data) is NoExtent.JUNK


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_data_object_says_where_it_begins(ledger: int, entry: int):
    assert of_data(header(ledger, entry)) == ObjectSpan((ledger, entry))


def test_a_copy_of_what_brokers_had_offloaded_is_no_junk_and_its_index_says_of_which_ledger():
    data = b"".join(write_blocks(messages(7, 20), 512))
    assert of_data(data) is NoExtent.OF_BROKERS
    assert together([NoExtent.OF_BROKERS]) is NoExtent.OF_BROKERS
    assert together([NoExtent.JUNK, NoExtent.OF_BROKERS]) is NoExtent.OF_BROKERS
    assert together([NoExtent.OF_BROKERS, NoExtent.NEWER]) is NoExtent.NEWER
    assert together([NoExtent.OF_BROKERS, ObjectSpan((7, 0), (7, NO_END))]) == ObjectSpan((7, 0), (7, NO_END))
    second = len(next(write_blocks(messages(7, 20), 512)))
    assert of_data(data[second:]) is NoExtent.JUNK, "a copy is of a whole ledger"


@given(st.data())
def test_damage_never_makes_another_place_of_a_record(data: st.DataObject):
    made, _ = archive()
    segment = segment_of(made, 1)
    record = encode_catalog(segment.uuid, segment)
    key = layout.record_key(TOPIC, segment.uuid)
    assert of_record(TOPIC, key, record) == ObjectSpan((5, 10), (5, 19))
    at = data.draw(st.integers(0, len(record) - 1))
    damaged = record[:at] + bytes([record[at] ^ data.draw(st.integers(1, 255))]) + record[at + 1 :]
    assert of_record(TOPIC, key, damaged) in (NoExtent.JUNK, NoExtent.NEWER)


def test_the_index_says_the_last_ledger_and_the_record_the_last_entry():
    made, _ = archive()
    segment = segment_of(made, 1)
    index = of_index(made.store.read(layout.index_key(TOPIC, segment.uuid))[0])
    assert index == ObjectSpan((5, 10), (5, NO_END))
    assert together([ObjectSpan((5, 10)), index]) == index
    assert together([ObjectSpan((5, 10)), index, ObjectSpan((5, 10), (5, 19))]) == ObjectSpan((5, 10), (5, 19))
    assert together([NoExtent.JUNK, index]) == index
    assert together([NoExtent.NEWER, index]) is NoExtent.NEWER
    assert together([]) is NoExtent.JUNK
