"""What every store must do. Its test module runs all of it: `class TestX(StoreContract)` with a fixture `subject`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.synchronize import Barrier

import pytest

from offloader.errors import FatalError, ObjectNotFoundError
from offloader.ports.object_store import ObjectStore, Stat
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.storage.contract_uploads import EndedUploadContract, UploadContract
from tests.storage.subject import Subject, noise, processes

WRITERS = 8
RACING_PROCESSES = 3

KEYS = [
    "plain",
    "tenant/namespace/persistent%3A%2F%2Ftopic%20a/_catalog/00000000000000000001",
    "with space/and + plus&=?#;,@",
    "ünï/日本/🙂",
    "~!$'()*[]{}^`",
    "dots.and..dots/...x",
    "k" * 200 + "/" + "l" * 200 + "/" + "m" * 200,
]


class ObjectContract:
    """Whole objects."""

    @pytest.fixture
    def store(self, subject: Subject) -> Iterator[ObjectStore]:
        store = subject.open()
        yield store
        store.close()

    @pytest.fixture
    def other(self, subject: Subject) -> Iterator[ObjectStore]:
        """The same root, seen by another process."""
        store = subject.open()
        yield store
        store.close()

    @pytest.mark.parametrize("size", [0, 1, 1_000_003])
    def test_an_object_is_read_back_as_it_was_written(self, store: ObjectStore, other: ObjectStore, size: int) -> None:
        data = noise(size)
        written = store.put("a/object", data)
        assert written is not None
        assert written.size == size
        assert other.read("a/object") == (data, other.stat("a/object"))
        found = other.stat("a/object")
        assert found is not None
        assert (found.size, found.etag) == (size, written.etag)

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [
            (0, 4, b"0123"),
            (3, 2, b"34"),
            (8, 5, b"89"),
            (7, None, b"789"),
            (0, 0, b""),
            (10, None, b""),
            (10, 3, b""),
            (99, 1, b""),
        ],
    )
    def test_a_range_is_short_at_the_end_and_empty_past_it(
        self, store: ObjectStore, offset: int, length: int | None, expected: bytes
    ) -> None:
        store.put("digits", b"0123456789")
        data, found = store.read("digits", offset, length)
        assert data == expected
        assert found == store.stat("digits")
        assert found.size == 10

    def test_an_empty_object_has_empty_ranges(self, store: ObjectStore) -> None:
        store.put("empty", b"")
        assert store.read("empty", 0, 10)[0] == b""
        assert store.read("empty", 5)[0] == b""

    def test_a_put_replaces_and_changes_the_etag(self, store: ObjectStore) -> None:
        etags = set()
        for i in range(5):
            written = store.put("k", b"%d" % i)
            assert written is not None
            etags.add(written.etag)
            assert store.read("k")[0] == b"%d" % i
        assert len(etags) == 5

    def test_metadata_is_kept_where_the_store_can(self, subject: Subject, store: ObjectStore) -> None:
        meta = {"Uuid": "1-2-3", "role": "index"}
        store.put("with", b"x", meta=meta)
        store.put("without", b"x")
        found, bare = store.stat("with"), store.stat("without")
        assert found is not None
        assert bare is not None
        assert dict(found.meta) == ({"uuid": "1-2-3", "role": "index"} if subject.keeps_meta else {})
        assert not bare.meta

    def test_what_is_absent_is_told_so(self, store: ObjectStore) -> None:
        store.put("there/is/one", b"x")
        assert store.stat("there/is/none") is None
        assert store.stat("there/is") is None
        for offset, length in [(0, None), (3, 5), (0, 0)]:
            with pytest.raises(ObjectNotFoundError):
                store.read("there/is/none", offset, length)

    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/./b", "nul\0", ".uploads/x", "x" * 1025])
    def test_a_key_that_no_store_can_hold_is_refused(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(FatalError):
            store.put(key, b"x")

    @pytest.mark.parametrize("key", KEYS)
    def test_keys_are_kept_character_by_character(self, store: ObjectStore, key: str) -> None:
        store.put(key, key.encode())
        assert store.put(key, b"another", if_absent=True) is None
        assert store.read(key)[0] == key.encode()
        assert list(store.list()) == [(key, len(key.encode()))]
        assert list(store.list(key)) == [(key, len(key.encode()))]
        assert list(store.list("", key)) == []
        store.delete([key])
        assert store.stat(key) is None
        assert list(store.list()) == []

    @pytest.mark.parametrize("as_upload", [False, True])
    def test_if_absent_takes_the_first_and_refuses_others(
        self, store: ObjectStore, other: ObjectStore, as_upload: bool
    ) -> None:
        first = store.put("slot", b"mine", if_absent=True, as_upload=as_upload)
        assert first is not None
        assert other.put("slot", b"theirs", if_absent=True, as_upload=as_upload) is None
        assert store.read("slot")[0] == b"mine"

    def test_if_absent_with_the_same_bytes_is_ours(self, store: ObjectStore) -> None:
        first = store.put("slot", b"token 1", if_absent=True)
        assert store.put("slot", b"token 1", if_absent=True) == first

    def test_of_what_was_there_first_no_more_is_read_than_could_be_ours(
        self, subject: Subject, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put("slot", b"x" * 100_000)
        asked: list[int | None] = []
        read = store.read

        def watched(key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
            asked.append(length)
            return read(key, offset, length)

        monkeypatch.setattr(store, "read", watched)
        assert store.put("slot", b"x" * 10, if_absent=True) is None
        assert bool(asked) == subject.compares_by_reading
        assert all(length is not None and length < 100 for length in asked)

    def test_folders_are_told_once_each_in_the_order_of_keys(self, store: ObjectStore) -> None:
        for key in ("b/c/1", "b/c/2", "b/c-d/x/y", "b/e", "a-/z", "a/z/1", "a/z/2", "f"):
            store.put(key, b"")
        assert list(store.folders()) == ["a-/", "a/", "b/"]
        assert list(store.folders("b/")) == ["b/c-d/", "b/c/"]
        assert list(store.folders("b/c")) == ["b/c-d/", "b/c/"]
        assert list(store.folders("b/c/")) == list(store.folders("none/")) == []
        store.delete(["a/z/1", "a/z/2"])
        assert set(store.folders("b/c-d/")) == {"b/c-d/x/"}

    def test_a_deleted_object_can_be_created_again(self, store: ObjectStore) -> None:
        store.put("slot", b"1", if_absent=True)
        store.delete(["slot"])
        assert store.put("slot", b"2", if_absent=True) is not None
        assert store.read("slot")[0] == b"2"

    @pytest.fixture
    def restless(self) -> Iterator[None]:
        """Threads take turns after every few steps, so that a race is a race."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(interval)

    @pytest.mark.usefixtures("restless")
    def test_of_racing_creators_one_wins_and_nobody_reads_a_part_of_an_object(
        self, store: ObjectStore, other: ObjectStore
    ) -> None:
        for i in range(20):
            contents = [bytes([65 + n]) * 50_000 for n in range(WRITERS)]
            start = threading.Barrier(WRITERS + 1)

            def create(n: int, key: str = f"race/{i}", start: threading.Barrier = start) -> bool:
                start.wait()
                return (store if n % 2 else other).put(key, contents[n], if_absent=True) is not None  # noqa: B023

            with ThreadPoolExecutor(WRITERS + 1) as pool:
                seen = pool.submit(_read_until_there, other, f"race/{i}", start)
                won = list(pool.map(create, range(WRITERS)))
                assert won.count(True) == 1
                assert seen.result() == contents[won.index(True)]

    def test_of_racing_processes_one_wins(self, subject: Subject, store: ObjectStore) -> None:
        if subject.settings is None:  # the store lives in one process: the race of threads is all there is
            assert subject.open().url == store.url
            return
        keys = [f"race/{i}" for i in range(50)]
        context = processes()
        barrier = context.Barrier(RACING_PROCESSES)
        with ProcessPoolExecutor(
            RACING_PROCESSES, mp_context=context, initializer=start_racing, initargs=(barrier,)
        ) as pool:
            racers = [pool.submit(create_all, subject.settings, keys, writer) for writer in range(RACING_PROCESSES)]
            results = [racer.result() for racer in racers]
        for key, won in zip(keys, zip(*results, strict=True), strict=True):
            assert won.count(True) == 1
            assert store.read(key)[0] == content_of(won.index(True))

    def test_a_reader_sees_the_old_object_or_the_new_one(self, store: ObjectStore, other: ObjectStore) -> None:
        store.put("k", b"a" * 200_000)
        done = threading.Event()

        def write() -> None:
            for i in range(20):
                store.put("k", bytes([97 + i % 2]) * (100_000 + 100_000 * (i % 2)))
            done.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not done.is_set() and not writing.done():
                data, found = other.read("k")
                assert len(data) == found.size
                assert len(set(data)) == 1
            writing.result()

    def test_a_listing_has_every_object_in_order_as_soon_as_it_is_written(
        self, store: ObjectStore, other: ObjectStore
    ) -> None:
        # "-" and "." sort before "/", "0" after it: folders must not be listed as if their names had no slash
        keys = ["a", "b/x", "b-", "b-y/y", "b.c", "b0", "b/x0/z", "b/x-1", "c/d/e/f", "é/1", "z\U0001f642", "z\uffee"]
        for n, key in enumerate(keys):
            store.put(key, b"1" * n)
            assert [k for k, _ in other.list()] == sorted(keys[: n + 1])
        assert dict(other.list()) == {key: n for n, key in enumerate(keys)}
        for after in [*keys, "b", "b/", "b/y", "zz", " "]:
            assert [k for k, _ in other.list("", after)] == sorted(k for k in keys if k > after)
        for prefix in ["b", "b/", "b/x", "b-", "c/d", "c/d/", "c/d/e/f", "q", "q/r", "a/"]:
            assert [k for k, _ in other.list(prefix)] == sorted(k for k in keys if k.startswith(prefix))
        assert [k for k, _ in other.list("b/", "b/x-1")] == ["b/x0/z"]

    def test_many_are_deleted_at_once_and_missing_ones_are_no_error(self, store: ObjectStore) -> None:
        keys = [f"many/{i:04}" for i in range(1100)]
        store.put(keys[0], b"x")
        store.put(keys[-1], b"x")
        store.put("stays", b"x")
        store.delete(keys)
        store.delete(keys[:2])
        store.delete([])
        assert [key for key, _ in store.list()] == ["stays"]

    def test_what_is_deleted_by_its_etag_is_this_object_and_no_other(self, store: ObjectStore) -> None:
        first = store.put("one", b"first")
        assert first is not None
        store.put("one", b"second")
        assert not store.delete_if("one", first.etag)
        second = store.stat("one")
        assert second is not None
        assert store.read("one")[0] == b"second"
        assert store.delete_if("one", second.etag)
        assert store.stat("one") is None
        assert store.delete_if("one", second.etag)

    def test_an_object_says_when_it_was_written(self, store: ObjectStore) -> None:
        before = time.time_ns() // 1_000_000
        store.put("dated", b"x")
        found = store.stat("dated")
        assert found is not None
        assert abs(found.modified_at - before) < 60_000
        assert store.read("dated")[1].modified_at == found.modified_at

    def test_whether_former_versions_stay_is_told_or_not_known(self, store: ObjectStore) -> None:
        store.put("any", b"x")
        assert store.keeps_versions() in (False, None)


class StoreContract(ObjectContract, UploadContract, EndedUploadContract):
    """All of it."""


def content_of(writer: int) -> bytes:
    """What a racing process writes."""
    return bytes([48 + writer]) * 10_000


_together: list[Barrier] = []


def start_racing(barrier: Barrier) -> None:
    """Each racing process keeps what they wait at."""
    _together.append(barrier)


def create_all(settings: StoreSettings, keys: list[str], writer: int) -> list[bool]:
    """One racing process: all begin each key together."""
    store = open_store(settings)
    won = []
    try:
        for key in keys:
            _together[0].wait(60)
            won.append(store.put(key, content_of(writer), if_absent=True) is not None)
    finally:
        store.close()
    return won


def _read_until_there(store: ObjectStore, key: str, start: threading.Barrier) -> bytes:
    start.wait()
    while True:
        try:
            return store.read(key)[0]
        except ObjectNotFoundError:
            continue
