"""Whatever happens to an object of the bucket, `verify` says of which, and no reader returns a wrong byte for it."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.findings import Finding, FindingKind
from offloader.errors import OffloadError
from offloader.metadata import layout
from offloader.storage.memory import MemoryStore
from tests.archive.mutations import KINDS, bucket, findings, kind_of, read
from tests.archive.support import TOPIC, uuid_of

BUCKET = bucket()

# What a change of an object of a kind is called.
CALLED = {
    "data": {FindingKind.DAMAGED_PART, FindingKind.WRONG_SIZE},
    "index": {FindingKind.DAMAGED_INDEX},
    "record": {FindingKind.DAMAGED_RECORD},
    "catalog": {FindingKind.DAMAGED_RECORD},
    "journal": {FindingKind.DAMAGED_RECORD},
    "root": {FindingKind.DAMAGED_RECORD},
}
FOLDERS = sorted({key.rpartition("/")[0] for key in BUCKET.keys("catalog")})
objects = st.sampled_from(KINDS).flatmap(lambda kind: st.sampled_from(BUCKET.keys(kind)))


def check_found(found: list[Finding], key: str, kinds: set[FindingKind]) -> None:
    """A journal without its newest snapshot cannot be read at all: then its folder is named."""
    keys = (key, layout.journal_folder("app")) if kind_of(key) == "journal" else (key,)
    assert any(f.key in keys and f.kind in kinds for f in found), f"{key}: {[str(f) for f in found]}"


def check_readers(store: MemoryStore, *, complete: bool = False, mixed_up: bool = False) -> None:
    """Each topic's entries, in order, are the original ones, up to an error; without one they are all there.

    `mixed_up`: a valid record of another catalog stands in one, and there is no way to know what the right one said:
    what is given still is what it says it is.
    """
    for topic, truth in BUCKET.truths.items():
        got = []
        try:
            for entry in read(store, topic):
                got.append(entry)
                assert entry in truth if mixed_up else entry == truth[len(got) - 1]
        except OffloadError:
            assert not complete
            continue
        assert mixed_up or len(got) == len(truth), f"{topic} ends after {len(got)} of {len(truth)} entries"


def test_the_bucket_is_sound() -> None:
    assert findings(BUCKET.store()) == []
    check_readers(BUCKET.store(), complete=True)
    assert {kind_of(key) for key in BUCKET.objects} == {*KINDS, "claim"}


@given(objects, st.data())
def test_a_flipped_bit(key: str, data: st.DataObject) -> None:
    changed = bytearray(BUCKET.objects[key])
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    store = BUCKET.store(**{key: bytes(changed)})
    check_found(findings(store), key, CALLED[kind_of(key)])
    check_readers(store)


@given(objects, st.data())
def test_an_object_that_is_cut_short(key: str, data: st.DataObject) -> None:
    whole = BUCKET.objects[key]
    store = BUCKET.store(**{key: whole[: data.draw(st.integers(0, len(whole) - 1))]})
    check_found(findings(store), key, CALLED[kind_of(key)])
    check_readers(store)


@given(objects, objects)
def test_an_object_in_place_of_another(key: str, other: str) -> None:
    if BUCKET.objects[key] == BUCKET.objects[other]:
        return
    store = BUCKET.store(**{key: BUCKET.objects[other]})
    check_found(findings(store), key, CALLED[kind_of(key)])
    both_records = kind_of(key) == kind_of(other) == "catalog"
    check_readers(
        store, mixed_up=both_records and layout.parse_topic_key(key).topic != layout.parse_topic_key(other).topic
    )


@pytest.mark.parametrize("key", [key for kind in ("data", "index", "record", "root") for key in BUCKET.keys(kind)])
def test_an_object_that_is_gone(key: str) -> None:
    called = {
        "data": FindingKind.MISSING_OBJECT,
        "index": FindingKind.MISSING_INDEX,
        "record": FindingKind.MISSING_RECORD,
        "root": FindingKind.DAMAGED_RECORD,
    }
    store = BUCKET.store(**{key: None})
    check_found(findings(store), key, {called[kind_of(key)]})
    check_readers(store)


def without_last(keys: list[str]) -> list[str]:
    return [key for key, after in pairwise(keys) if after.rpartition("/")[0] == key.rpartition("/")[0]]


@pytest.mark.parametrize("key", without_last(BUCKET.keys("catalog")))
def test_a_record_of_a_catalog_that_is_gone(key: str) -> None:
    store = BUCKET.store(**{key: None})
    check_found(findings(store), key, {FindingKind.DAMAGED_RECORD})
    check_readers(store)


@pytest.mark.parametrize("key", BUCKET.keys("claim"))
def test_a_claim_that_is_gone_from_the_list(key: str) -> None:
    store = BUCKET.store(**{key: None})
    check_found(findings(store), key, {FindingKind.MISSING_CLAIM})
    check_readers(store, complete=True)


@pytest.mark.parametrize("key", without_last(BUCKET.keys("journal")))
def test_a_record_of_a_journal_that_is_gone(key: str) -> None:
    store = BUCKET.store(**{key: None})
    check_found(findings(store), layout.journal_folder("app"), {FindingKind.DAMAGED_RECORD})
    check_readers(store)


def test_the_last_record_of_a_catalog_that_is_gone_is_missed_by_whoever_came_after_it() -> None:
    """Nothing says how many records there are: what the record named is found without it, and readers end before it."""
    last = BUCKET.keys("catalog")[-1]
    folder = layout.catalog_folder(TOPIC)
    assert last.startswith(folder)
    store = BUCKET.store(**{last: None})
    check_found(findings(store), layout.data_key(TOPIC, uuid_of(4)), {FindingKind.STRAY_OBJECT})
    check_found(findings(store), folder, {FindingKind.WRONG_PREDECESSOR})
    truth = BUCKET.truths[TOPIC]
    found = list(read(store, TOPIC))
    assert found == truth[: len(found)]
    assert len(found) == len(truth) - 12


def test_the_last_record_of_a_journal_that_is_gone_is_missed_by_the_upload_that_it_named() -> None:
    last = BUCKET.keys("journal")[-1]
    store = BUCKET.store(**{last: None})
    check_found(findings(store), layout.data_key(TOPIC, uuid_of(90)), {FindingKind.OPEN_UPLOAD})
    check_readers(store, complete=True)


@pytest.mark.parametrize(("key", "name"), [(k, n) for k in BUCKET.objects for n in (".bak", "~")])
def test_an_object_that_stands_under_another_name_as_well(key: str, name: str) -> None:
    store = BUCKET.store(**{key + name: BUCKET.objects[key]})
    if kind_of(key) != "journal":
        check_found(
            findings(store),
            key + name,
            {FindingKind.LEFT_OVER if kind_of(key) == "claim" else FindingKind.STRAY_OBJECT},
        )
    check_readers(store, complete=True)


@pytest.mark.parametrize(
    ("key", "index"), list(product([k for k in BUCKET.objects if kind_of(k) == "data"], [False, True]))
)
def test_a_segment_that_stands_under_another_uuid_as_well(key: str, *, index: bool) -> None:
    copy = key[: -len(uuid_of(0))] + uuid_of(77)
    more = {copy + "-index": BUCKET.objects[key + "-index"]} if index else {}
    store = BUCKET.store(**{copy: BUCKET.objects[key], **more})
    for name in (copy, *more):
        check_found(findings(store), name, {FindingKind.STRAY_OBJECT})
    check_readers(store, complete=True)


@pytest.mark.parametrize(("key", "folder"), list(product(BUCKET.keys("catalog"), FOLDERS)))
def test_a_record_that_stands_at_a_catalog_s_end_as_well(key: str, folder: str) -> None:
    following = max(k for k in BUCKET.objects if k.startswith(folder))
    copy = f"{folder}/{layout.slot_name(int(following.rpartition('/')[2]) + 1)}"
    store = BUCKET.store(**{copy: BUCKET.objects[key]})
    check_found(findings(store), copy, {FindingKind.DAMAGED_RECORD})
    check_readers(store)


@pytest.mark.parametrize("key", BUCKET.keys("journal"))
def test_a_record_that_stands_at_a_journal_s_end_as_well(key: str) -> None:
    folder, _, last = BUCKET.keys("journal")[-1].rpartition("/")
    copy = f"{folder}/{layout.slot_name(int(last) + 1)}"
    store = BUCKET.store(**{copy: BUCKET.objects[key]})
    check_found(findings(store), copy, {FindingKind.DAMAGED_RECORD})
    check_readers(store, complete=True)
