"""The store in a folder: the contract, and what it says of crashes, full disks and folders."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    StoreFullError,
    StoreUnavailableError,
    UnprovenStoreError,
)
from offloader.storage import local_files
from offloader.storage.local import LocalStore
from offloader.storage.settings import StoreSettings
from tests.storage.contract import StoreContract
from tests.storage.contract_copies import CopyContract, StrictCopyContract
from tests.storage.subject import Subject, upload_parts

LEFT_OVER_AFTER_SECONDS = 86_400


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


class TestLocal(StoreContract, CopyContract, StrictCopyContract):
    @pytest.fixture
    def subject(self, root: Path) -> Subject:
        return Subject(
            lambda: LocalStore(root),
            StoreSettings(root.as_uri()),
            keeps_meta=_has_attributes(root.parent),
            beside=lambda: LocalStore(root.with_name("beside")),
        )


def _has_attributes(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.offloader.test", b"x")
    except (OSError, AttributeError):
        return False
    return True


def raising(number: int):
    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return fail


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def test_the_root_is_created_by_the_first_write_and_its_parent_is_not(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    assert list(store.list()) == []
    assert list(store.list_uploads()) == []
    assert not (tmp_path / "root").exists()
    store.put("k", b"x")
    assert (tmp_path / "root" / "k").read_bytes() == b"x"
    with pytest.raises(BucketNotFoundError, match="typo"):
        LocalStore(tmp_path / "typo" / "root").put("k", b"x")


def test_a_file_system_without_hard_links_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    with pytest.raises(UnprovenStoreError, match="hard links"):
        LocalStore(root).put("k", b"x")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EACCES, AccessDeniedError),
        (errno.EROFS, AccessDeniedError),
        (errno.EIO, StoreUnavailableError),
    ],
)
def test_a_write_that_fails_leaves_nothing_and_says_why(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[OffloadError]
) -> None:
    store = LocalStore(root)
    upload = store.begin("big")
    before = files_below(root)
    monkeypatch.setattr(os, "pwrite", raising(number))
    with pytest.raises(expected, match="k"):
        store.put("k", b"x")
    with pytest.raises(expected):
        upload_parts(store, upload, [b"x"])
    with pytest.raises(expected):
        store.begin("another")
    monkeypatch.undo()
    assert [path for path in files_below(root) if not path.startswith(".tmp") and path not in before] == [
        f".uploads/{upload.partition(':')[0]}/1"
    ]
    store.commit(upload, upload_parts(store, upload, [b"x"]))
    assert store.read("big")[0] == b"x"


def test_a_write_that_may_not_be_on_disk_is_unknown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    store.put("first", b"x")
    monkeypatch.setattr(local_files, "sync_folder", raising(errno.EIO))
    with pytest.raises(OutcomeUnknownError):
        store.put("k", b"token", if_absent=True)
    monkeypatch.undo()
    assert store.put("k", b"token", if_absent=True) == store.stat("k")


def test_a_repeated_write_is_on_disk_before_it_succeeds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    store.put("a/first", b"x")
    upload = store.begin("a/big")
    parts = upload_parts(store, upload, [b"data"])
    sync, synced, refusals = local_files.sync_folder, list[Path](), list[int]()

    def failing_twice(folder: Path) -> None:
        if folder == root / "a" and refusals:
            raise OSError(refusals.pop(), "I/O error")
        synced.append(folder)
        sync(folder)

    monkeypatch.setattr(local_files, "sync_folder", failing_twice)
    for write in (lambda: store.put("a/k", b"token", if_absent=True), lambda: store.commit(upload, parts)):
        refusals[:] = [errno.EIO, errno.EIO]
        for _ in range(2):
            with pytest.raises(OutcomeUnknownError):
                write()
        synced.clear()
        assert write() is not None
        assert root / "a" in synced


def test_keys_that_a_file_system_cannot_hold_are_refused(root: Path) -> None:
    store = LocalStore(root)
    store.put("file", b"x")
    store.put("folder/x", b"x")
    for key in ("file/below", "folder", "long/" + "x" * 300):
        with pytest.raises(FatalError):
            store.put(key, b"x")
    assert store.stat("file/below") is None
    assert store.stat("folder") is None
    assert files_below(root) == ["file", "folder/x"]


def test_metadata_is_dropped_where_there_are_no_attributes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setxattr", raising(errno.ENOTSUP), raising=False)
    store = LocalStore(root)
    written = store.put("k", b"x", meta={"a": "b"})
    assert written is not None
    assert not written.meta
    assert written == store.stat("k")


def test_what_killed_processes_left_is_removed_after_a_day(root: Path) -> None:
    LocalStore(root).put("k", b"x")
    old, fresh, folder = root / ".tmp/old", root / ".tmp/fresh", root / ".tmp/folder"
    folder.mkdir()
    for path in (old, fresh, folder / "data"):
        path.write_bytes(b"x")
    long_ago = time.time() - LEFT_OVER_AFTER_SECONDS - 60
    for path in (old, folder):
        os.utime(path, (long_ago, long_ago))
    LocalStore(root).put("k", b"x")
    assert [path.name for path in (root / ".tmp").iterdir()] == ["fresh"]


def test_folders_that_hold_no_wanted_key_are_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    for key in ("a/1/x", "a/2/x", "b/1/x", "c/1/x"):
        store.put(key, b"x")
    read: list[str] = []
    scan = os.scandir

    def read_folder(path: str | Path) -> object:
        read.append(str(Path(path).relative_to(root)))
        return scan(path)

    monkeypatch.setattr(os, "scandir", read_folder)
    assert [key for key, _ in store.list("b/1/")] == ["b/1/x"]
    assert read == ["b/1"]
    read.clear()
    assert [key for key, _ in store.list("", "b/1/w")] == ["b/1/x", "c/1/x"]
    assert read == [".", "b", "b/1", "c", "c/1"]
