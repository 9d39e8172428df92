"""Stores through fsspec: its file system in memory stands for those with an atomic create."""

from __future__ import annotations

import uuid
from itertools import product

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from offloader.errors import UnprovenStoreError
from offloader.metadata.layout import topic_folder
from offloader.metadata.listing import topics
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.fsspec import FsspecStore
from tests.storage.contract import StoreContract
from tests.storage.subject import Subject


class TestFsspec(StoreContract):
    @pytest.fixture
    def subject(self) -> Subject:
        root = f"memory://{uuid.uuid4().hex}/root"
        return Subject(lambda: FsspecStore(root), keeps_meta=False)


def test_no_file_system_copies_a_part_by_itself() -> None:
    store = FsspecStore(f"memory://{uuid.uuid4().hex}/root")
    store.put("from", b"data")
    upload = store.begin("k", copies=True)
    port: ObjectStore = store
    assert port.copy_part(upload, 1, 0, store, "from", 0, 4) is None
    store.abort(upload)


@pytest.mark.parametrize(
    "url", ["hdfs://host/path", "ftp://host/path", "sftp://host/path", "local:///path", "nonsense://x"]
)
def test_a_file_system_without_a_proven_create_is_refused(url: str) -> None:
    with pytest.raises(UnprovenStoreError, match="s3://"):
        FsspecStore(url)


class Counting(MemoryFileSystem):
    """Counts what it lists."""

    cachable = False
    listed = 0

    def ls(self, path: str, detail: bool = True, **kwargs: object) -> list[object]:
        found = super().ls(path, detail, **kwargs)
        type(self).listed += len(found)
        return found


def test_the_topics_of_a_root_are_listed_without_their_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec, "url_to_fs", lambda url, **_: (Counting(), url.removeprefix("memory:/")))
    store = FsspecStore(f"memory://{uuid.uuid4().hex}/root")
    names = [TopicName("tenant", "ns", f"topic{number}") for number in range(5)]
    for name, count in product(names, range(100)):
        store.put(f"{topic_folder(name)}_catalog/{0:020d}/{count:020d}", b"")
    Counting.listed = 0
    assert list(topics(store)) == names
    in_one = 100 + 1 + 1  # its first generation, that folder, and the folder of catalogs
    above = len(names) + 1 + 1  # topics, namespaces, tenants
    assert Counting.listed <= (len(names) + 1) * (in_one + above)
