"""Both phases in a folder, and over fsspec."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from offloader.ports.object_store import ObjectStore
from offloader.storage.fsspec import FsspecStore
from offloader.storage.local import LocalStore

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
