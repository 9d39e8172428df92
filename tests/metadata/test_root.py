"""The root knows its cluster; a store that cannot keep metadata is refused before anything is written."""

from dataclasses import replace
from itertools import count

import pytest

from offloader.errors import (
    AccessDeniedError,
    AnotherClusterError,
    ConfigError,
    DamagedRecordError,
    StoreUnavailableError,
    UnprovenStoreError,
)
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.root import open_root, prove, read_root
from offloader.metadata.state import Root
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

from .support import claim, tokens


def test_a_root_is_made_once():
    store = MemoryStore()
    made = open_root(store, "east", tokens("a"))
    assert made == Root("a-1", "east")
    assert open_root(store, "east", tokens("b")) == read_root(store) == made
    assert [key for key, _ in store.list()] == ["_root"]


def test_another_cluster_s_root_is_refused():
    store = MemoryStore(url="memory://bucket")
    open_root(store, "east", tokens())
    with pytest.raises(
        AnotherClusterError, match="memory://bucket holds topics of cluster east, this is cluster west: choose"
    ):
        open_root(store, "west", tokens())


def test_a_cluster_that_was_rebuilt_under_its_name_is_refused():
    store = MemoryStore(url="memory://bucket")
    made = open_root(store, "east", tokens(), bookkeeper="first")
    assert made == read_root(store) == Root("t-1", "east", "first")
    assert open_root(store, "east", tokens()) == made, "where it is not known, there is nothing to compare"
    with pytest.raises(AnotherClusterError, match="instance id first, this one has second: it was rebuilt"):
        open_root(store, "east", tokens(), bookkeeper="second")
    assert read_root(store) == made


def test_an_earlier_root_gets_the_instance_id_once_it_is_known():
    store = MemoryStore()
    made = open_root(store, "east", tokens())
    assert open_root(store, "east", tokens(), bookkeeper="first", create=False) == made
    assert open_root(store, "east", tokens("b"), bookkeeper="first") == replace(made, bookkeeper="first")
    with pytest.raises(AnotherClusterError):
        open_root(store, "east", tokens(), bookkeeper="second")


def test_a_store_that_keeps_a_root_as_it_is_does_not_stop_the_start():
    store = MemoryStore()
    made = open_root(store, "east", tokens())
    refused = StoreFault("put", error=lambda: AccessDeniedError("retention"), key=lambda k: k == "_root", after=1)
    assert open_root(FaultyStore(store, StoreFaults([refused])), "east", tokens(), bookkeeper="first") == made


def test_a_reader_writes_nothing():
    store = MemoryStore()
    with pytest.raises(ConfigError, match=r"storage.root: nothing was offloaded"):
        open_root(store, "east", tokens(), create=False)
    assert list(store.list()) == []
    open_root(store, "east", tokens())
    writes = store.backing.writes
    assert open_root(store, "east", tokens(), create=False).cluster == "east"
    assert store.backing.writes == writes


def test_a_lost_race_for_the_root_is_no_error():
    store = MemoryStore()
    race = StoreFault(
        "put", Effect.HOOK, hook=lambda: open_root(store, "east", tokens("winner")), key=lambda k: k == "_root"
    )
    assert open_root(FaultyStore(store, StoreFaults([race])), "east", tokens("loser")) == Root("winner-1", "east")


@pytest.mark.parametrize("data", [b"", b"junk", encode_catalog("t", claim())])
def test_a_damaged_root_is_told(data: bytes):
    store = MemoryStore()
    store.put("_root", data)
    with pytest.raises(DamagedRecordError, match="_root"):
        read_root(store)


class Overwriting(MemoryStore):
    """Ignores the condition, as some stores do."""

    def put(self, key, data, *, meta=None, if_absent=False, as_upload=False):
        return super().put(key, data, meta=meta)


class Lying(MemoryStore):
    """Refuses the second writer, and writes all the same."""

    def put(self, key, data, *, meta=None, if_absent=False, as_upload=False):
        there = self.stat(key)
        super().put(key, data, meta=meta)
        return there if not (if_absent and there) else None


class Refusing(MemoryStore):
    def put(self, key, data, *, meta=None, if_absent=False, as_upload=False):
        return None


class Forgetful(MemoryStore):
    """Lists from a cache."""

    def list(self, prefix="", start_after=""):
        return iter([])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Overwriting, "overwrites"),
        (Lying, "refuses to create"),
        (Refusing, "refuses to create"),
        (Forgetful, "does not list"),
    ],
)
def test_an_unproven_store_is_refused_and_left_empty(kind: type[MemoryStore], why: str):
    store = kind()
    with pytest.raises(UnprovenStoreError, match=why):
        open_root(store, "east", tokens())
    assert store.backing.objects == {}


def test_each_proof_has_a_place_of_its_own():
    store, numbers = MemoryStore(), count()
    store.put("_proof/left over", b"first")
    for _ in range(3):
        prove(store, f"token {next(numbers)}")
    assert [key for key, _ in store.list()] == ["_proof/left over"]


def test_a_store_that_is_away_is_not_called_unproven():
    with pytest.raises(StoreUnavailableError):
        prove(FaultyStore(MemoryStore(), StoreFaults([StoreFault("put")])), "t")
