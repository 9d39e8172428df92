"""A part's index entries: equal by content wherever they are held, read from a record only when they are asked for."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.part_codec import decode_parts, encode_parts
from offloader.model import Part
from offloader.part_index import IndexEntry, PartIndex

from . import support
from .support import MIXES, full_segment

ENTRIES = (IndexEntry(7, 0, 1, 0), IndexEntry(7, 30, 1, 262_200), IndexEntry(8, 0, 2, 300_000))


def some_parts() -> tuple[Part, ...]:
    return full_segment(MIXES[-1][1], MIXES[-1][2], seed=1).parts[:5]


@given(support.parts)
def test_an_index_is_the_same_in_memory_in_a_record_and_pickled(part: Part):
    (stored,) = decode_parts(encode_parts([part]))
    for index in (stored.index, pickle.loads(pickle.dumps(stored)).index, pickle.loads(pickle.dumps(part)).index):
        assert (list(index), len(index), hash(index)) == (list(part.index), len(part.index), hash(part.index))
        assert index == part.index
        assert part.index == index


def test_other_entries_make_another_index():
    whole = PartIndex.of(ENTRIES)
    others = [PartIndex(), PartIndex.of(ENTRIES[:2]), PartIndex.of((*ENTRIES[:2], replace(ENTRIES[2], offset=300_001)))]
    assert whole == PartIndex.of(ENTRIES)
    assert whole != ENTRIES
    assert all(whole != other for other in others)


def test_a_stored_index_is_told_from_another_of_the_same_length():
    parts = [replace(p, index=PartIndex.of(list(p.index)[:10])) for p in some_parts()]
    one, other = decode_parts(encode_parts(parts))[:2]
    assert len(one.index) == len(other.index)
    assert one.index != other.index


def test_a_pickled_part_does_not_take_its_group_along():
    part = decode_parts(encode_parts(some_parts()))[0]
    assert len(pickle.dumps(part)) == len(pickle.dumps(some_parts()[0]))


def test_index_entries_are_not_read_before_they_are_asked_for():
    broken = pb.PartGroup.FromString(encode_parts(some_parts()))
    broken.step_entry = b"\x09"
    parts = decode_parts(broken.SerializeToString())
    assert [replace(p, index=PartIndex()) for p in parts] == [replace(p, index=PartIndex()) for p in some_parts()]
    assert [len(p.index) for p in parts] == [len(p.index) for p in some_parts()]
    with pytest.raises(DamagedRecordError, match=r"index entries .*: unknown kind of column 9"):
        list(parts[0].index)


def test_index_columns_of_the_wrong_length_are_damage():
    for column in ("step_entry", "step_offset"):
        broken = pb.PartGroup.FromString(encode_parts(some_parts()))
        setattr(broken, column, b"\x01\x02\x02")  # two varints
        with pytest.raises(DamagedRecordError, match="a column is too short"):
            list(decode_parts(broken.SerializeToString())[0].index)
    broken = pb.PartGroup.FromString(encode_parts(some_parts()))
    broken.step_entry = b"\x01" + b"\x02" * 10_000
    with pytest.raises(DamagedRecordError, match="column step_entry has values left"):
        list(decode_parts(broken.SerializeToString())[0].index)
