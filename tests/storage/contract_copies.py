"""What every store must do with parts that it is asked to copy by itself."""

from __future__ import annotations

from uuid import uuid4

import pytest
from crc32c import crc32c

from offloader.errors import IntegrityError, ObjectNotFoundError, UploadGoneError
from offloader.ports.object_store import ObjectStore, Stat, UploadedPart
from offloader.storage.fsspec import FsspecStore
from tests.storage.subject import Subject, noise

SPARE = 1000  # of the source, before and behind what is copied


def source_of(store: ObjectStore, subject: Subject, key: str = "from/there") -> tuple[bytes, Stat]:
    """An object of two parts, and a little before and behind."""
    data = noise(2 * subject.part_size + 2 * SPARE, key)
    found = store.put(key, data)
    assert found is not None
    return data, found


def copied(part: UploadedPart | None) -> UploadedPart:
    assert part is not None
    return part


class CopyContract:
    """Copied parts are parts like any other; nothing is copied from another source than the one that was meant."""

    def test_parts_are_copied_from_the_middle_of_an_object(
        self, subject: Subject, store: ObjectStore, other: ObjectStore
    ) -> None:
        data, found = source_of(other, subject)
        upload = store.begin("k", meta={"Role": "data"}, copies=True)
        size = subject.part_size
        parts = [
            copied(store.copy_part(upload, 1, 0, store, "from/there", SPARE, size, found.etag)),
            copied(other.copy_part(upload, 2, size, store, "from/there", SPARE + size, 17, found.etag)),
        ]
        assert [(part.number, part.size) for part in parts] == [(1, size), (2, 17)]
        assert other.stat("k") is None
        committed = store.commit(upload, parts)
        assert other.read("k") == (data[SPARE : SPARE + size + 17], committed)
        assert dict(committed.meta) == ({"role": "data"} if subject.keeps_meta else {})
        assert list(store.list_uploads()) == []

    def test_the_bucket_beside_gets_copies_under_keys_without_folders(
        self, subject: Subject, store: ObjectStore
    ) -> None:
        assert subject.beside is not None
        beside = subject.beside()
        data, found = source_of(store, subject)
        upload = beside.begin("copy", copies=True)
        part = copied(beside.copy_part(upload, 1, 0, store, "from/there", 0, len(data), found.etag))
        beside.commit(upload, [part])
        assert beside.read("copy")[0] == data
        assert [key for key, _ in beside.list() if key == "copy"] == ["copy"]
        assert store.stat("copy") is None
        beside.delete(["copy"])
        assert beside.stat("copy") is None
        assert store.stat("from/there") is not None

    def test_copied_and_sent_parts_become_one_object_also_when_a_commit_is_repeated(
        self, subject: Subject, store: ObjectStore, other: ObjectStore
    ) -> None:
        data, found = source_of(store, subject)
        size, own = subject.part_size, noise(subject.part_size, "own")
        upload = store.begin("k", copies=True)
        parts = [
            store.put_part(upload, 1, 0, own, crc32c(own)),
            copied(store.copy_part(upload, 2, size, store, "from/there", 0, size, found.etag)),
            store.put_part(upload, 3, 2 * size, b"end", crc32c(b"end")),
        ]
        store.commit(upload, parts)
        assert other.commit(upload, parts).size == 2 * size + 3
        assert store.read("k")[0] == own + data[:size] + b"end"

    def test_a_part_may_be_copied_again_or_sent_in_its_place(self, subject: Subject, store: ObjectStore) -> None:
        data, found = source_of(store, subject)
        upload = store.begin("k", copies=True)
        size = subject.part_size
        copied(store.copy_part(upload, 1, 0, store, "from/there", 0, size, found.etag))
        again = copied(store.copy_part(upload, 1, 0, store, "from/there", 0, size, found.etag))
        copied(store.copy_part(upload, 2, size, store, "from/there", size, 9, found.etag))
        sent = store.put_part(upload, 2, size, b"own", crc32c(b"own"))
        store.commit(upload, [again, sent])
        assert store.read("k")[0] == data[:size] + b"own"

    def test_a_source_that_is_gone_is_not_found(self, store: ObjectStore) -> None:
        upload = store.begin("k", copies=True)
        with pytest.raises(ObjectNotFoundError):
            store.copy_part(upload, 1, 0, store, "from/nowhere", 0, 10, "etag")
        store.abort(upload)

    def test_what_another_server_has_is_not_copied(self, store: ObjectStore) -> None:
        elsewhere = FsspecStore(f"memory://{uuid4().hex}/root")
        elsewhere.put("from/there", b"data")
        upload = store.begin("k", copies=True)
        assert store.copy_part(upload, 1, 0, elsewhere, "from/there", 0, 4) is None
        store.commit(upload, [store.put_part(upload, 1, 0, b"data", crc32c(b"data"))])
        assert store.read("k")[0] == b"data"


class StrictCopyContract:
    """Another source than the one that was meant is refused, and an upload that has ended takes no copies."""

    def test_nothing_is_copied_of_a_source_that_was_replaced_since(self, subject: Subject, store: ObjectStore) -> None:
        _, found = source_of(store, subject)
        store.put("from/there", noise(found.size, "another"))
        upload = store.begin("k", copies=True)
        with pytest.raises(IntegrityError, match="from/there"):
            store.copy_part(upload, 1, 0, store, "from/there", 0, subject.part_size, found.etag)
        store.abort(upload)

    def test_nothing_is_copied_of_a_source_that_ends_too_early(self, subject: Subject, store: ObjectStore) -> None:
        data, found = source_of(store, subject)
        upload = store.begin("k", copies=True)
        for begin, size in ((len(data) - 10, 11), (len(data) + 5, 5)):
            with pytest.raises(IntegrityError, match="from/there"):
                store.copy_part(upload, 1, 0, store, "from/there", begin, size, found.etag)
        store.abort(upload)

    def test_a_copy_for_an_upload_that_has_ended_creates_nothing(
        self, subject: Subject, store: ObjectStore, other: ObjectStore
    ) -> None:
        _, found = source_of(store, subject)
        upload = store.begin("k", copies=True)
        store.abort(upload)
        with pytest.raises(UploadGoneError):
            other.copy_part(upload, 1, 0, store, "from/there", 0, 10, found.etag)
        assert store.stat("k") is None
        assert list(store.list_uploads()) == []

    def test_a_part_that_was_damaged_in_memory_is_refused(self, store: ObjectStore) -> None:
        upload = store.begin("k", copies=True)
        with pytest.raises(IntegrityError):
            store.put_part(upload, 1, 0, b"damaged", crc32c(b"sound"))
        store.abort(upload)
