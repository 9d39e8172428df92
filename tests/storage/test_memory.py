"""The store in memory."""

from __future__ import annotations

import pytest

from offloader.errors import ObjectNotFoundError, StoreFullError
from offloader.storage.memory import MemoryBacking, MemoryStore
from offloader.storage.metered import MeteredStore
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.storage.contract import StoreContract
from tests.storage.contract_copies import CopyContract, StrictCopyContract
from tests.storage.subject import Subject


class TestMemory(StoreContract, CopyContract, StrictCopyContract):
    @pytest.fixture
    def subject(self) -> Subject:
        backing = MemoryBacking()
        return Subject(lambda: MemoryStore(backing), beside=MemoryStore, compares_by_reading=False)


class TestMemoryWithTheLimitsOfS3(StoreContract, CopyContract):
    @pytest.fixture
    def subject(self) -> Subject:
        backing = MemoryBacking()
        return Subject(
            lambda: MemoryStore(backing, min_part_size=5000),
            part_size=5000,
            beside=MemoryStore,
            compares_by_reading=False,
        )


class TestMemoryBehindAMeter(StoreContract, CopyContract):
    @pytest.fixture
    def subject(self) -> Subject:
        backing = MemoryBacking()

        def metered(backing: MemoryBacking) -> MeteredStore:
            return MeteredStore(MemoryStore(backing), lambda *told: None)

        return Subject(lambda: metered(backing), beside=lambda: metered(MemoryBacking()), compares_by_reading=False)


def test_a_meter_tells_of_each_call_and_how_it_ended() -> None:
    told: list[tuple[str, str]] = []
    full = StoreFault("begin", error=lambda: StoreFullError("full"))
    inner = FaultyStore(MemoryStore(), StoreFaults([full]))
    store = MeteredStore(inner, lambda verb, seconds, outcome: told.append((verb, outcome)))
    store.put("a", b"x")
    assert [key for key, _ in store.list()] == ["a"]
    with pytest.raises(ObjectNotFoundError):
        store.read("b")  # an answer, too
    with pytest.raises(StoreFullError):
        store.begin("c")
    assert told == [("put", "ok"), ("list", "ok"), ("read", "ok"), ("begin", "error")]


def test_a_store_that_copies_nothing_by_itself_says_so() -> None:
    store = MemoryStore(copies=False)
    store.put("from", b"data")
    assert store.copy_part(store.begin("k", copies=True), 1, 0, store, "from", 0, 4) is None
