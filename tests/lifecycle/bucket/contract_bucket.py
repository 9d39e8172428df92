"""Both phases over any store: `class TestX(BucketContract)` with a fixture `store`."""

from __future__ import annotations

import time

from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.deletion.machine import DeletionTry, GoneLedger, UnreferencedLedger
from offloader.metadata import layout
from offloader.ports.object_store import ObjectStore
from tests.archive.support import TOPIC

from .support import CERTAIN, HOUR, SUSPECT, a_uuid, archive, by_id, in_time, scanner
from .test_bucket_side import DATA, INDEX, RECORD, U, mark, strays


def now() -> int:
    return time.time_ns() // 1_000_000


class BucketContract:
    """What was found in memory is found there."""

    def test_orphans_are_found_and_go_and_nothing_else(self, store: ObjectStore) -> None:
        made, _ = archive()
        strays(made, U)
        for key, _ in made.store.list():
            store.put(key, made.store.read(key)[0])
        upload = store.begin(layout.data_key(TOPIC, a_uuid(2)))
        before = {key for key, _ in store.list()}
        young = by_id(scanner(store, now).scan())
        assert {each.verdict for each in young.values()} == {SUSPECT}
        scan = scanner(store, lambda: now() + HOUR, grace=0).scan()
        found = by_id(scan)
        assert found.keys() == {DATA, INDEX, RECORD, upload}
        assert {each.verdict for each in found.values()} == {CERTAIN}
        assert scan.keeps_versions in (False, None)
        bucket = BucketSide(store, scanner(store, now, grace=0))
        records = sorted(mark(scan.orphans, now()), key=lambda each: each.name)
        looks = bucket.look(records).looks
        assert {type(looks[record.name]) for record in records} == {UnreferencedLedger}
        data = next(record for record in records if record.object_key == DATA)
        store.put(DATA, b"written again")
        assert bucket.delete(data, in_time)[0] is DeletionTry.REFUSED
        scan = scanner(store, now, grace=0).scan()
        records = sorted(mark(scan.orphans, now()), key=lambda each: each.name)
        assert [bucket.delete(record, in_time) for record in records] == [(DeletionTry.DONE, "")] * 4
        assert set(bucket.look(records).looks.values()) == {GoneLedger()}
        assert {key for key, _ in store.list()} == before - {DATA, INDEX, RECORD}
        assert list(store.list_uploads()) == []
