"""What every store must do with uploads in parts."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from crc32c import crc32c

from offloader.errors import IntegrityError, PartRejectedError, UploadGoneError
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.storage.subject import Subject, noise, open_uploads, processes, upload_parts


class UploadContract:
    """Uploads that are open, with parts that are what their checksums say, and commits that are repeated."""

    def test_parts_become_an_object_at_the_commit_and_not_before(
        self, subject: Subject, store: ObjectStore, other: ObjectStore
    ) -> None:
        contents = [noise(subject.part_size, 1), noise(subject.part_size + 7, 2), noise(3, 3)]
        upload = store.begin("t/object", meta={"Uuid": "u-1"})
        parts = upload_parts(store, upload, contents)
        assert other.stat("t/object") is None
        assert list(other.list()) == []
        assert open_uploads(other, "t/object") == [upload]

        committed = other.commit(upload, parts)
        data, found = store.read("t/object")
        assert data == b"".join(contents)
        assert found == committed
        assert found.size == len(data)
        assert dict(found.meta) == ({"uuid": "u-1"} if subject.keeps_meta else {})
        assert list(store.list()) == [("t/object", len(data))]
        assert open_uploads(store, "t/object") == []

    @pytest.mark.parametrize("size", [0, 1])
    def test_a_small_object_is_one_part(self, store: ObjectStore, size: int) -> None:
        upload = store.begin("small")
        store.commit(upload, upload_parts(store, upload, [noise(size)]))
        assert store.read("small")[0] == noise(size)

    def test_a_part_tells_its_number_size_and_checksum(self, store: ObjectStore) -> None:
        upload = store.begin("k")
        part = store.put_part(upload, 1, 0, b"123456789", 0xE3069283)
        assert (part.number, part.size, part.crc32c) == (1, 9, 0xE3069283)
        store.abort(upload)

    def test_parts_may_arrive_in_any_order_from_many_threads(
        self, subject: Subject, store: ObjectStore, other: ObjectStore
    ) -> None:
        contents = [noise(subject.part_size, n) for n in range(4)]
        upload = store.begin("k")

        def send(n: int) -> UploadedPart:
            return (store if n % 2 else other).put_part(
                upload, n + 1, n * subject.part_size, contents[n], crc32c(contents[n])
            )

        last = send(3)
        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(send, [2, 1, 0]))
        store.commit(upload, [*reversed(parts), last])
        assert store.read("k")[0] == b"".join(contents)

    def test_parts_come_from_several_processes(self, subject: Subject, store: ObjectStore) -> None:
        if subject.settings is None:  # the store lives in one process
            assert subject.open().url == store.url
            return
        upload = store.begin("k")
        with ProcessPoolExecutor(2, mp_context=processes()) as pool:
            parts = list(pool.map(send_part, [subject.settings] * 3, [upload] * 3, [1, 2, 3], [subject.part_size] * 3))
        store.commit(upload, parts)
        assert store.read("k")[0] == b"".join(noise(subject.part_size, n) for n in (1, 2, 3))

    def test_the_same_part_may_be_sent_again(self, subject: Subject, store: ObjectStore, other: ObjectStore) -> None:
        contents = [noise(subject.part_size, 1), noise(10, 2)]
        upload = store.begin("k")
        parts = upload_parts(store, upload, contents)
        assert upload_parts(other, upload, contents) == parts
        store.commit(upload, parts)
        assert store.read("k")[0] == b"".join(contents)

    @pytest.mark.parametrize("shorter", [0, 5])
    def test_of_two_contents_of_a_part_the_named_one_is_published_or_none(
        self, subject: Subject, store: ObjectStore, shorter: int
    ) -> None:
        old, new, last = noise(subject.part_size + 5, 1), noise(subject.part_size + 5 - shorter, 2), noise(9, 3)
        upload = store.begin("k")
        before = upload_parts(store, upload, [old, last])
        after = upload_parts(store, upload, [new, last])
        try:
            store.commit(upload, before)
        except PartRejectedError:
            store.commit(upload, after)
            assert store.read("k")[0] == new + last
        else:
            assert store.read("k")[0] == old + last

    def test_a_part_of_another_content_counts_once_it_is_named(self, subject: Subject, store: ObjectStore) -> None:
        upload = store.begin("k")
        upload_parts(store, upload, [noise(subject.part_size, 1), noise(subject.part_size, 2), noise(9, 3)])
        contents = [noise(subject.part_size, 1), noise(subject.part_size + 3, 4), noise(8, 5)]
        store.commit(upload, upload_parts(store, upload, contents))
        assert store.read("k")[0] == b"".join(contents)

    def test_parts_that_are_not_named_are_left_out(self, subject: Subject, store: ObjectStore) -> None:
        contents = [noise(subject.part_size, n) for n in range(3)]
        upload = store.begin("k")
        parts = upload_parts(store, upload, contents)
        store.commit(upload, parts[:2])
        assert store.read("k")[0] == contents[0] + contents[1]

    def test_a_commit_without_one_of_its_parts_is_refused_and_can_be_made_good(
        self, subject: Subject, store: ObjectStore
    ) -> None:
        contents = [noise(subject.part_size, n) for n in range(3)]
        full = store.begin("whole")
        named = upload_parts(store, full, contents)
        upload = store.begin("k")
        upload_parts(store, upload, contents[:1])
        store.put_part(upload, 3, 2 * subject.part_size, contents[2], crc32c(contents[2]))
        with pytest.raises(PartRejectedError):
            store.commit(upload, named)
        assert store.stat("k") is None
        store.put_part(upload, 2, subject.part_size, contents[1], crc32c(contents[1]))
        store.commit(upload, named)
        assert store.read("k")[0] == b"".join(contents)
        store.abort(full)

    def test_parts_must_be_all_numbers_from_one_in_order(self, subject: Subject, store: ObjectStore) -> None:
        upload = store.begin("k")
        parts = upload_parts(store, upload, [noise(subject.part_size, n) for n in range(3)])
        for wrong in ([], [parts[1], parts[0], parts[2]], [parts[0], parts[2]], [parts[0], parts[0]], parts[1:]):
            with pytest.raises(PartRejectedError):
                store.commit(upload, wrong)
        assert store.stat("k") is None
        store.commit(upload, parts)

    def test_a_commit_may_be_repeated(self, subject: Subject, store: ObjectStore, other: ObjectStore) -> None:
        contents = [noise(subject.part_size, 1), noise(10, 2)]
        upload = store.begin("k")
        parts = upload_parts(store, upload, contents)
        first = store.commit(upload, parts)
        assert store.commit(upload, parts).size == first.size
        assert other.commit(upload, parts).size == first.size
        assert store.read("k")[0] == b"".join(contents)

    def test_an_abort_may_be_repeated_and_keeps_what_was_committed(
        self, store: ObjectStore, other: ObjectStore
    ) -> None:
        aborted, committed = store.begin("a"), store.begin("c")
        store.commit(committed, upload_parts(store, committed, [b"data"]))
        for _ in range(2):
            store.abort(aborted)
            other.abort(aborted)
            store.abort(committed)
        assert [key for key, _ in store.list()] == ["c"]
        assert store.read("c")[0] == b"data"
        assert list(store.list_uploads()) == []

    def test_open_uploads_are_listed_by_prefix_with_their_begin(self, store: ObjectStore) -> None:
        a, b = store.begin("t/a"), store.begin("u/b")
        assert {found.upload for found in store.list_uploads()} == {a, b}
        (found,) = store.list_uploads("t/")
        assert (found.key, found.upload) == ("t/a", a)
        assert found.began_at > 1_000_000_000_000
        for upload in (a, b):
            store.abort(upload)


class EndedUploadContract:
    """Uploads that have ended take nothing more, two of one key do not meet, and damaged parts are refused."""

    def test_a_commit_of_an_aborted_upload_is_gone(self, store: ObjectStore) -> None:
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"x"])
        store.abort(upload)
        with pytest.raises(UploadGoneError):
            store.commit(upload, parts)
        assert store.stat("k") is None

    def test_another_object_of_the_same_size_is_not_taken_for_the_upload(self, store: ObjectStore) -> None:
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"ours"])
        store.abort(upload)
        rival = store.begin("k")
        store.commit(rival, upload_parts(store, rival, [b"else"]))
        with pytest.raises(UploadGoneError):
            store.commit(upload, parts)
        assert store.read("k")[0] == b"else"

    def test_two_uploads_of_one_key_do_not_meet(self, store: ObjectStore) -> None:
        one, two = store.begin("k"), store.begin("k")
        first, second = upload_parts(store, one, [b"first"]), upload_parts(store, two, [b"second"])
        assert sorted(open_uploads(store, "k")) == sorted([one, two])
        store.commit(two, second)
        assert store.read("k")[0] == b"second"
        store.abort(one)
        with pytest.raises(UploadGoneError):
            store.commit(one, first)
        assert store.read("k")[0] == b"second"

    def test_a_part_for_an_aborted_upload_creates_nothing(self, store: ObjectStore, other: ObjectStore) -> None:
        upload = store.begin("k")
        upload_parts(store, upload, [b"x"])
        store.abort(upload)
        with pytest.raises(UploadGoneError):
            other.put_part(upload, 1, 0, b"x", crc32c(b"x"))
        with pytest.raises(UploadGoneError):
            other.put_part(upload, 2, 1, b"y", crc32c(b"y"))
        assert list(store.list()) == []
        assert list(store.list_uploads()) == []

    def test_a_part_after_the_commit_changes_nothing(
        self, subject: Subject, store: ObjectStore, other: ObjectStore
    ) -> None:
        contents = [noise(subject.part_size, 1), noise(10, 2)]
        upload = store.begin("k")
        store.commit(upload, upload_parts(store, upload, contents))
        for number, content in [(1, contents[0]), (1, noise(subject.part_size, 9)), (3, b"more")]:
            with pytest.raises(UploadGoneError):
                other.put_part(upload, number, 0, content, crc32c(content))
        assert store.read("k")[0] == b"".join(contents)
        assert list(store.list_uploads()) == []

    def test_a_part_that_is_not_what_its_checksum_says_is_refused(self, store: ObjectStore) -> None:
        upload = store.begin("k")
        with pytest.raises(IntegrityError):
            store.put_part(upload, 1, 0, b"damaged", crc32c(b"sound"))
        store.commit(upload, upload_parts(store, upload, [b"sound"]))
        assert store.read("k")[0] == b"sound"


def send_part(settings: StoreSettings, upload: str, number: int, size: int) -> UploadedPart:
    """One process that uploads one part."""
    store = open_store(settings)
    try:
        content = noise(size, number)
        return store.put_part(upload, number, (number - 1) * size, content, crc32c(content))
    finally:
        store.close()
