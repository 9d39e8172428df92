"""Each way to damage a ledger's objects has its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.archive.findings import FindingKind
from offloader.archive.ledgers.bucket import scan
from offloader.archive.ledgers.found import FoundLedgers
from offloader.errors import ObjectArchivedError
from offloader.format.v1 import decode_ledger_index
from offloader.metadata.stock_keys import data_key, index_key
from offloader.operations.verify.beside import verify_ledgers
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC
from tests.format.stock import encode_ledger_index

from .support import OTHER_UUID, UUID, flip, messages, put_ledger

DATA, INDEX = data_key(UUID, 3), index_key(UUID, 3)


class Bucket:
    """Two ledgers, and what Pulsar's record says of them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        put_ledger(self.store, 3, messages(3, 30))
        put_ledger(self.store, 5, messages(5, 20))
        self.found: FoundLedgers = scan(self.store).topics[TOPIC]

    def kinds(self, *, quick: bool = False) -> list[tuple[FindingKind, str]]:
        return [(f.kind, f.key) for f in verify_ledgers(self.found, lambda _: self.store, quick=quick)]

    def cut(self, key: str) -> None:
        data, stat = self.store.read(key)
        self.store.put(key, data[:-1], meta=stat.meta)

    def replace(self, key: str, other: str) -> None:
        data, stat = self.store.read(other)
        self.store.put(key, data, meta=stat.meta)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.mark.parametrize("quick", [True, False])
def test_nothing_is_wrong(bucket, quick) -> None:
    assert bucket.kinds(quick=quick) == []


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    ("damage", "kind", "key"),
    [
        (lambda b: b.store.delete([DATA]), FindingKind.MISSING_OBJECT, DATA),
        (lambda b: b.store.delete([INDEX]), FindingKind.MISSING_INDEX, INDEX),
        (lambda b: b.cut(DATA), FindingKind.WRONG_SIZE, DATA),
        (lambda b: b.cut(INDEX), FindingKind.DAMAGED_INDEX, INDEX),
        (lambda b: flip(b.store, INDEX, 1), FindingKind.DAMAGED_INDEX, INDEX),
    ],
)
def test_what_is_seen_without_reading_data(bucket, damage, kind, key, quick) -> None:
    damage(bucket)
    assert bucket.kinds(quick=quick) == [(kind, key)]


@pytest.mark.parametrize("key", [DATA, INDEX])
def test_an_object_in_an_archive_tier_is_a_finding_and_the_other_ledger_is_checked(
    bucket, key, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(bucket.store, data_key(UUID, 5), 300)
    read = bucket.store.read

    def read_unless_asleep(asked, *a):
        if asked == key:
            raise ObjectArchivedError(f"reading {key}: the object is in an archive tier")
        return read(asked, *a)

    monkeypatch.setattr(bucket.store, "read", read_unless_asleep)
    assert bucket.kinds() == [(FindingKind.ARCHIVED_OBJECT, key), (FindingKind.DAMAGED_ENTRY, data_key(UUID, 5))]


def test_damaged_entries(bucket) -> None:
    flip(bucket.store, DATA, 300)
    (finding,) = verify_ledgers(bucket.found, lambda _: bucket.store)
    assert (finding.kind, finding.key, finding.topic) == (FindingKind.DAMAGED_ENTRY, DATA, TOPIC)
    assert str(finding.position) == "3:1"
    assert finding.offset is not None
    assert finding.offset < 300 < finding.offset + len(messages(3, 2)[1]) + 12


@pytest.mark.parametrize("at", [0, 5, 19, 27, 35, 100, 131, 139])
def test_damaged_format(bucket, at) -> None:
    flip(bucket.store, DATA, at)
    assert bucket.kinds() == [(FindingKind.UNACCOUNTED_BYTES, DATA)]


def test_an_index_entry_that_points_elsewhere(bucket) -> None:
    size = len(bucket.store.read(INDEX)[0])
    flip(bucket.store, INDEX, size - 1)
    assert bucket.kinds() in ([(FindingKind.UNACCOUNTED_BYTES, DATA)], [(FindingKind.DAMAGED_INDEX, INDEX)])


def test_every_bit_of_an_index_that_readers_go_by(bucket) -> None:
    """All but BookKeeper's notes in it, which no reader needs."""
    data, stat = bucket.store.read(INDEX)
    end = 32 + int.from_bytes(data[28:32], "big")
    for at in (*range(32), *range(end, len(data))):
        flip(bucket.store, INDEX, at, 1 << at % 8)
        assert {kind for kind, _ in bucket.kinds()} <= {
            FindingKind.DAMAGED_INDEX,
            FindingKind.WRONG_SIZE,
            FindingKind.UNACCOUNTED_BYTES,
        }, at
        assert bucket.kinds() != [], at
        bucket.store.put(INDEX, data, meta=stat.meta)


def test_objects_of_another_ledger(bucket) -> None:
    bucket.replace(DATA, data_key(UUID, 5))
    assert bucket.kinds() == [(FindingKind.WRONG_SIZE, DATA)]
    bucket.replace(INDEX, index_key(UUID, 5))
    assert (FindingKind.WRONG_ENTRIES, DATA) in bucket.kinds(quick=True)
    alone = scan(bucket.store).topics[TOPIC]
    assert [f.kind for f in verify_ledgers(alone, lambda _: bucket.store)] == [FindingKind.WRONG_ENTRIES]


def test_other_entries_than_pulsars_record_says(bucket) -> None:
    first, second = bucket.found.ledgers
    bucket.found = replace(bucket.found, ledgers=(replace(first, size=first.size + 1), second))
    assert bucket.kinds(quick=True) == [(FindingKind.WRONG_ENTRIES, DATA)]


def test_other_bytes_than_the_index_counts(bucket) -> None:
    data, stat = bucket.store.read(INDEX)
    index = decode_ledger_index(data, 3)
    said = index.ledger_metadata
    said.length += 1
    bucket.store.put(INDEX, encode_ledger_index(replace(index, metadata=said.SerializeToString())), meta=stat.meta)
    bucket.found = scan(bucket.store).topics[TOPIC]
    assert bucket.kinds() == [(FindingKind.WRONG_ENTRIES, DATA)]


def test_what_was_found_with_the_ledgers_is_told_too() -> None:
    bucket = Bucket()
    put_ledger(bucket.store, 3, messages(3, 30), OTHER_UUID)
    bucket.found = scan(bucket.store).topics[TOPIC]
    assert bucket.kinds() == [(FindingKind.SECOND_COPY, data_key(OTHER_UUID, 3))]
