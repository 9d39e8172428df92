"""The store in memory."""

from __future__ import annotations

import pytest

from offloader.errors import ObjectNotFoundError
from offloader.storage.memory import MemoryBacking, MemoryStore
from offloader.storage.metered import MeteredStore
from tests.storage.contract import StoreContract
from tests.storage.subject import Subject


class TestMemory(StoreContract):
    @pytest.fixture
    def subject(self) -> Subject:
        backing = MemoryBacking()
        return Subject(lambda: MemoryStore(backing), compares_by_reading=False)


class TestMemoryWithTheLimitsOfS3(StoreContract):
    @pytest.fixture
    def subject(self) -> Subject:
        backing = MemoryBacking()
        return Subject(lambda: MemoryStore(backing, min_part_size=5000), part_size=5000, compares_by_reading=False)


class TestMemoryBehindAMeter(StoreContract):
    @pytest.fixture
    def subject(self) -> Subject:
        backing = MemoryBacking()
        return Subject(lambda: MeteredStore(MemoryStore(backing), lambda *told: None), compares_by_reading=False)


def test_a_meter_tells_of_each_call_and_how_it_ended() -> None:
    told: list[tuple[str, str]] = []
    store = MeteredStore(MemoryStore(), lambda verb, seconds, outcome: told.append((verb, outcome)))
    store.put("a", b"x")
    assert [key for key, _ in store.list()] == ["a"]
    with pytest.raises(ObjectNotFoundError):
        store.read("b")
    assert told == [("put", "ok"), ("list", "ok"), ("read", "error")]
