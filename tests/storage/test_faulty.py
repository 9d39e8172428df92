"""The store that fails on purpose: it must fail in exactly the way that a test asked for."""

from __future__ import annotations

import pytest

from offloader.errors import OutcomeUnknownError, StoreFullError, StoreUnavailableError
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.storage.contract import StoreContract
from tests.storage.contract_copies import CopyContract, StrictCopyContract
from tests.storage.subject import Subject, upload_parts


class TestWithoutFaults(StoreContract, CopyContract, StrictCopyContract):
    @pytest.fixture
    def subject(self) -> Subject:
        backing = MemoryBacking()

        def faulty(backing: MemoryBacking) -> FaultyStore:
            return FaultyStore(MemoryStore(backing), StoreFaults())

        return Subject(lambda: faulty(backing), beside=lambda: faulty(MemoryBacking()), compares_by_reading=False)


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


def test_a_fault_before_the_call_leaves_no_trace(inner: MemoryStore) -> None:
    store = FaultyStore(inner, StoreFaults([StoreFault("put", error=lambda: StoreFullError("full"))]))
    with pytest.raises(StoreFullError):
        store.put("k", b"x")
    assert inner.stat("k") is None
    assert store.put("k", b"x") is not None


def test_a_lost_answer_is_of_a_call_that_happened(inner: MemoryStore) -> None:
    store = FaultyStore(inner, StoreFaults([StoreFault("put", Effect.LOST), StoreFault("commit", Effect.LOST)]))
    with pytest.raises(OutcomeUnknownError):
        store.put("k", b"x", if_absent=True)
    assert inner.read("k")[0] == b"x"
    upload = store.begin("u")
    parts = upload_parts(store, upload, [b"data"])
    with pytest.raises(OutcomeUnknownError):
        store.commit(upload, parts)
    assert store.commit(upload, parts).size == 4


def test_a_repeated_call_gives_the_second_answer(inner: MemoryStore) -> None:
    faults = StoreFaults([StoreFault("*", Effect.REPEATED, times=100)])
    store = FaultyStore(inner, faults)
    assert store.put("k", b"x", if_absent=True) == inner.stat("k")
    upload = store.begin("u")
    assert store.commit(upload, upload_parts(store, upload, [b"data"])).size == 4
    assert len(list(inner.list_uploads())) == 1  # the first begin's, which nobody knows
    assert faults.calls["put_part"] == 1


def test_faults_choose_keys_and_count_calls(inner: MemoryStore) -> None:
    fault = StoreFault("put", key=lambda key: key.startswith("bad"), after=1, times=2)
    store = FaultyStore(inner, StoreFaults([fault]))
    outcome = []
    for key in ("bad/0", "good", "bad/1", "bad/2", "bad/3"):
        try:
            outcome.append(store.put(key, b"") is not None)
        except StoreUnavailableError:
            outcome.append(False)
    assert outcome == [True, True, False, False, True]
    assert store.faults.calls["put"] == 5


def test_a_hook_runs_before_the_call(inner: MemoryStore) -> None:
    hook = StoreFault("put", Effect.HOOK, hook=lambda: inner.put("k", b"another process") and None)
    store = FaultyStore(inner, StoreFaults([hook]))
    assert store.put("k", b"mine", if_absent=True) is None


def test_random_faults_follow_the_seed(inner: MemoryStore) -> None:
    def outcomes(seed: int) -> str:
        faults = StoreFaults(seed=seed)
        faults.at_random(0.3, StoreFault("put"), StoreFault("put", Effect.LOST))
        store = FaultyStore(inner, faults)
        return "".join(_outcome(store, f"{seed}/{i}") for i in range(200))

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)
    assert all(30 < outcomes(seed).count("b") < 100 for seed in (1, 2))
    assert all(20 < outcomes(seed).count("l") < 80 for seed in (1, 2))


def _outcome(store: FaultyStore, key: str) -> str:
    try:
        store.put(key, b"")
    except StoreUnavailableError:
        return "b"
    except OutcomeUnknownError:
        return "l"
    return "."
