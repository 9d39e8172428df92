"""The store in memory."""

from __future__ import annotations

import pytest

from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.storage.bench import Bench
from tests.storage.contract import StoreContract
from tests.storage.contract_uploads import StrictUploadContract


class TestMemory(StoreContract, StrictUploadContract):
    @pytest.fixture
    def bench(self) -> Bench:
        backing = MemoryBacking()
        return Bench(lambda: MemoryStore(backing))


class TestMemoryWithTheLimitsOfS3(StoreContract, StrictUploadContract):
    @pytest.fixture
    def bench(self) -> Bench:
        backing = MemoryBacking()
        return Bench(lambda: MemoryStore(backing, min_part_size=5000), part_size=5000)
