"""Records of rescued ledgers: they survive, and the newest one counts."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedRecordError, FormatVersionError
from offloader.metadata import layout, rescued_keys
from offloader.metadata.envelope import wrap
from offloader.metadata.rescue_log import Rescues, read_rescue
from offloader.metadata.rescues import NewestRescue, RescuedLedger, RescueForgotten
from offloader.storage.memory import MemoryStore

from .support import i64, losses, segments, text, tuples

DELETIONS_VERSION = 3

ledgers = st.builds(
    RescuedLedger,
    i64,
    i64,
    i64,
    i64,
    text,
    text,
    text,
    i64,
    i64,
    i64,
    tuples(st.tuples(text, st.binary(max_size=9))),
    tuples(segments),
    tuples(losses),
    st.binary(max_size=32),
    i64,
    text,
)
forgotten = st.builds(RescueForgotten, i64, text)


def stored(record: RescuedLedger | RescueForgotten) -> tuple[MemoryStore, int, str]:
    """A store that has the record alone, its ledger, and its key."""
    store, ledger = MemoryStore(), record.ledger if isinstance(record, RescuedLedger) else 7
    assert Rescues(store, "memory").write(ledger, 0, record, lambda: "token")
    ((key, _),) = store.list()
    return store, ledger, key


@given(ledgers | forgotten)
def test_a_record_survives(record: RescuedLedger | RescueForgotten):
    store, ledger, _ = stored(record)
    assert Rescues(store, "memory").newest(ledger) == NewestRescue(0, record)


@given(ledgers | forgotten, st.data())
def test_a_record_that_was_changed_is_damage(record: RescuedLedger | RescueForgotten, data: st.DataObject):
    store, ledger, key = stored(record)
    whole = bytes(store.read(key)[0])
    at = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at]):
        store.put(key, broken)
        with pytest.raises(DamagedRecordError):
            Rescues(store, "memory").newest(ledger)


def test_a_newer_versions_record_says_so():
    from offloader._proto import metadata_pb2 as pb

    body = pb.Body(rescue_forgotten=pb.RescueForgotten(at=1))
    store, ledger, key = stored(a_rescue(7))
    store.put(key, wrap("token", body, DELETIONS_VERSION + 1))
    with pytest.raises(FormatVersionError):
        Rescues(store, "memory").newest(ledger)


def a_rescue(ledger: int, at: int = 1) -> RescuedLedger:
    return RescuedLedger(ledger, 1, 9, 90, "data", "t/n/persistent/x", "CRC32C", 3, 2, 2, (), (), (), b"", at, "me")


def test_the_newest_record_counts_and_a_number_is_taken_once():
    rescues, tokens = Rescues(MemoryStore(), "memory"), count()

    def write(slot: int, record: RescuedLedger | RescueForgotten) -> bool:
        return rescues.write(7, slot, record, lambda: str(next(tokens)))

    assert rescues.newest(7) == NewestRescue(-1, None)
    assert write(0, a_rescue(7))
    assert not write(0, a_rescue(7, at=2))
    assert rescues.rescued(7) == a_rescue(7)
    assert write(1, RescueForgotten(3, "me"))
    assert rescues.newest(7) == NewestRescue(1, RescueForgotten(3, "me"))
    assert rescues.rescued(7) is None
    assert write(2, a_rescue(7, at=4))
    assert rescues.rescued(7) == a_rescue(7, at=4)
    assert list(rescues.ledgers()) == [7]


def test_a_record_of_another_ledger_or_another_kind_is_damage():
    store = MemoryStore()
    rescues = Rescues(store, "memory")
    rescues.write(7, 0, a_rescue(8), lambda: "t")
    with pytest.raises(DamagedRecordError, match="the record of ledger 8"):
        rescues.newest(7)
    assert "ledger 8" in str(read_rescue(rescues, 7))


@given(st.text(min_size=1, max_size=9), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.uuids().map(str))
def test_keys_say_what_they_are_and_are_no_topics(cluster: str, ledger: int, slot: int, uuid: str):
    folder = rescued_keys.rescued_objects_folder(cluster, ledger, slot)
    for key in (folder + uuid, folder + uuid + layout.INDEX):
        assert rescued_keys.parse_rescued_key(cluster, key) == rescued_keys.RescuedKey(ledger, slot, uuid)
        assert layout.topic_of(key) == (None, key)
    record = rescued_keys.rescue_records_folder(cluster, ledger) + layout.slot_name(slot)
    assert rescued_keys.parse_rescued_key(cluster, record) == rescued_keys.RescuedKey(ledger, slot)
    assert rescued_keys.parse_rescued_key(cluster + "x", record) is None
    assert rescued_keys.parse_rescued_key(cluster, record + "/x") is None
