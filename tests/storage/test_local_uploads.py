"""Uploads in a folder: parts in place, and what zombies, crashes and other cuts cannot do."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import FormatVersionError, PartRejectedError, StoreUnavailableError, UploadGoneError
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage import local_files, local_uploads
from offloader.storage.local import LocalStore
from offloader.storage.memory import MemoryStore
from tests.storage.subject import noise, upload_parts


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def folder_of(store: LocalStore, upload: str) -> Path:
    return store.root / ".uploads" / upload.partition(":")[0]


class Zombie:
    """A task that has opened its file and stands before its write, until it is let go."""

    def __init__(self, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._arrived, self._released = threading.Event(), threading.Event()
        self._thread_id = 0
        write = local_files.write_at

        def gate(fd: int, data: bytes, offset: int = 0) -> None:
            if threading.get_ident() == self._thread_id:
                self._arrived.set()
                assert self._released.wait(30)
            write(fd, data, offset)

        monkeypatch.setattr(local_uploads, "write_at", gate)
        self._pool = ThreadPoolExecutor(1)

    def send(self, upload: str, number: int, offset: int, content: bytes) -> None:
        def work() -> UploadedPart:
            self._thread_id = threading.get_ident()
            return self._store.put_part(upload, number, offset, content, crc32c(content))

        self._result = self._pool.submit(work)
        assert self._arrived.wait(30)

    def let_go(self) -> None:
        """It writes, and may learn that its upload is gone."""
        self._released.set()
        self._pool.shutdown()
        if self._result.exception() is not None:
            with pytest.raises(UploadGoneError):
                self._result.result()


def test_parts_in_order_are_written_once_and_renamed(store: LocalStore) -> None:
    upload = store.begin("k")
    parts = upload_parts(store, upload, [noise(1000, 1), noise(500, 2)])
    data = folder_of(store, upload) / "data"
    assert data.read_bytes() == noise(1000, 1) + noise(500, 2)
    inode = data.stat().st_ino
    store.commit(upload, parts)
    assert (store.root / "k").stat().st_ino == inode
    assert not folder_of(store, upload).exists()
    assert list((store.root / ".tmp").iterdir()) == []


def test_a_zombie_that_writes_after_the_commit_writes_the_same_bytes(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = Zombie(store, monkeypatch)
    contents = [noise(1000, 1), noise(500, 2)]
    upload = store.begin("k")
    zombie.send(upload, 1, 0, contents[0])
    store.commit(upload, upload_parts(store, upload, contents))
    zombie.let_go()
    assert store.read("k")[0] == b"".join(contents)


@pytest.mark.parametrize("named", [1, 2])
def test_a_zombie_with_a_part_that_is_not_named_does_not_lengthen_the_object(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    zombie = Zombie(store, monkeypatch)
    contents = [noise(1000, 1), noise(500, 2)]
    upload = store.begin("k")
    parts = upload_parts(store, upload, contents)
    zombie.send(upload, 3, 1500, noise(99, 3))
    store.commit(upload, parts[:named])
    zombie.let_go()
    assert store.read("k")[0] == b"".join(contents[:named])


def test_a_zombie_with_other_bytes_does_not_touch_the_object(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = Zombie(store, monkeypatch)
    upload = store.begin("k")
    parts = upload_parts(store, upload, [noise(1000, 1)])
    zombie.send(upload, 1, 0, noise(1000, 9))
    store.commit(upload, parts)
    zombie.let_go()
    assert store.read("k")[0] == noise(1000, 1)
    assert list((store.root / ".uploads").iterdir()) == []


def test_a_zombie_of_an_aborted_upload_creates_nothing(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (noise(1000, 1), noise(1000, 2)):
        zombie = Zombie(store, monkeypatch)
        upload = store.begin("k")
        upload_parts(store, upload, [noise(1000, 1)])
        zombie.send(upload, 1, 0, content)
        store.abort(upload)
        zombie.let_go()
        monkeypatch.undo()
    assert [path for path in store.root.rglob("*") if not path.is_dir()] == []


def test_parts_of_another_cut_do_not_overlap_those_in_place(store: LocalStore) -> None:
    upload = store.begin("k")
    parts = upload_parts(store, upload, [noise(1000, 1)])
    other_cut = store.put_part(upload, 2, 900, noise(500, 2), crc32c(noise(500, 2)))
    assert (folder_of(store, upload) / "data").read_bytes() == noise(1000, 1)
    store.commit(upload, [*parts, other_cut])
    assert store.read("k")[0] == noise(1000, 1) + noise(500, 2)


def test_what_is_no_upload_hides_none(store: LocalStore) -> None:
    upload, broken = store.begin("k"), store.begin("broken")
    uploads = store.root / ".uploads"
    (uploads / ".DS_Store").write_bytes(b"x")
    (uploads / ("0" * 32)).write_bytes(b"x")
    (uploads / ("1" * 32)).mkdir()
    (folder_of(store, broken) / "upload.json").write_bytes(b"")
    assert [found.upload for found in store.list_uploads()] == [upload]
    (folder_of(store, broken) / "upload.json").write_bytes(b'{"keys": 1}')
    assert [found.upload for found in store.list_uploads()] == [upload]
    with pytest.raises(UploadGoneError):
        store.commit(broken, upload_parts(store, broken, [b"x"]))


def test_an_upload_that_a_newer_version_has_begun_is_refused_and_one_of_a_build_before_the_first_release_is_not(
    store: LocalStore,
) -> None:
    upload = store.begin("k", meta={"a": "b"})
    parts = upload_parts(store, upload, [b"x"])
    description = folder_of(store, upload) / "upload.json"
    said = json.loads(description.read_text())
    description.write_text(json.dumps({**said, "version": 2, "news": 1}))
    for refused in (lambda: list(store.list_uploads()), lambda: store.commit(upload, parts)):
        with pytest.raises(FormatVersionError, match=r"upload.json has version 2, .*: run a newer one"):
            refused()
    del said["version"]
    description.write_text(json.dumps(said))
    assert [found.upload for found in store.list_uploads()] == [upload]
    store.commit(upload, parts)


def test_after_the_commit_has_closed_an_upload_no_part_can_be_added_in_place(store: LocalStore) -> None:
    upload = store.begin("k")
    parts = upload_parts(store, upload, [noise(1000, 1)])
    (folder_of(store, upload) / "2").symlink_to("end")  # a commit that died after its first step
    second = store.put_part(upload, 2, 1000, b"more", crc32c(b"more"))
    assert (folder_of(store, upload) / "data").stat().st_size == 1000
    store.commit(upload, [*parts, second])
    assert store.read("k")[0] == noise(1000, 1) + b"more"


def test_a_commit_that_died_before_it_cleaned_up_is_repeated(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = store.begin("k")
    parts = upload_parts(store, upload, [noise(1000, 1), b"end"])
    with monkeypatch.context() as patch:
        patch.setattr(local_uploads.UploadFolder, "remove", _die)
        with pytest.raises(StoreUnavailableError):
            store.commit(upload, parts)
    assert folder_of(store, upload).exists()
    with pytest.raises(UploadGoneError):
        upload_parts(store, upload, [noise(1000, 1)])
    assert store.commit(upload, parts) == store.stat("k")
    assert not folder_of(store, upload).exists()
    assert store.read("k")[0] == noise(1000, 1) + b"end"


def test_a_part_that_was_claimed_and_never_written_is_missed_at_the_commit(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = store.begin("k")
    parts = upload_parts(store, upload, [b"first"])
    with monkeypatch.context() as patch:
        patch.setattr(local_uploads, "write_at", _die)
        with pytest.raises(StoreUnavailableError):
            store.put_part(upload, 2, 5, b"second", crc32c(b"second"))
    imagined = UploadedPart(2, 6, "6-0", crc32c(b"second"))
    with pytest.raises(PartRejectedError):
        store.commit(upload, [*parts, imagined])
    store.commit(upload, [*parts, store.put_part(upload, 2, 5, b"second", crc32c(b"second"))])
    assert store.read("k")[0] == b"firstsecond"


def _die(*args, **kwargs):
    raise OSError("died")


SIZES = (1, 3, 4)
VARIANT = st.integers(0, len(SIZES) - 1)
SENT = st.tuples(st.integers(1, 3), VARIANT, st.sampled_from([0, 1, 3, 4, 7]))


@given(st.lists(SENT, max_size=12), st.lists(VARIANT, min_size=1, max_size=3))
def test_a_folder_publishes_what_is_named_whatever_else_was_sent(tmp_path_factory, sent, named) -> None:
    # Also parts at offsets of other cuts: they overlap, and must not damage each other.
    store = LocalStore(tmp_path_factory.mktemp("store"))
    _check_uploads(store, sent, named, keeps_all=True)


@given(st.lists(SENT, max_size=12), st.lists(VARIANT, min_size=1, max_size=3))
def test_memory_publishes_what_is_named_or_nothing(sent, named) -> None:
    _check_uploads(MemoryStore(), sent, named, keeps_all=False)


def _check_uploads(store: ObjectStore, sent: list[tuple[int, int, int]], named: list[int], *, keeps_all: bool) -> None:
    upload = store.begin("k")
    got: dict[tuple[int, int], UploadedPart] = {}
    for number, variant, offset in sent:
        content = content_of(number, variant)
        got[number, variant] = store.put_part(upload, number, offset, content, crc32c(content))
    wanted = list(enumerate(named, 1))
    parts = [got.get(key) or part_of(*key) for key in wanted]
    expected = b"".join(content_of(*key) for key in wanted)
    try:
        store.commit(upload, parts)
    except PartRejectedError:
        assert not (keeps_all and all(key in got for key in wanted))
        assert store.stat("k") is None
    else:
        assert all(key in got for key in wanted)
        assert store.read("k")[0] == expected


def content_of(number: int, variant: int) -> bytes:
    return bytes([16 * number + variant]) * SIZES[variant]


def part_of(number: int, variant: int) -> UploadedPart:
    content = content_of(number, variant)
    return UploadedPart(number, len(content), "never sent", crc32c(content))
