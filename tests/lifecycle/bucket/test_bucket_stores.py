"""Both phases in a folder, over fsspec, and in a small Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from offloader.ports.object_store import ObjectStore
from offloader.storage.fsspec import FsspecStore
from offloader.storage.local import LocalStore
from tests.storage.gcs_server import google_in_memory
from tests.storage.servers import Stores

from .contract_bucket import BucketContract


class TestFolder(BucketContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "bucket")


class TestFsspec(BucketContract):
    @pytest.fixture
    def store(self, request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
        store = FsspecStore(f"memory://{request.node.name}")
        yield store
        store.delete([key for key, _ in store.list()])


class TestGoogle(BucketContract):
    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        stores = Stores()
        with google_in_memory() as server:
            yield stores.open(server.settings(server.fresh_root()))
            stores.close()
