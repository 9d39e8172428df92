"""A seal commits on the catalog that the driver holds, however stale: what others wrote meanwhile counts."""

from collections.abc import Callable

import pytest

from offloader.errors import ClaimedByOtherError, IntegrityError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.layout import catalog_folder
from offloader.metadata.state import CatalogHead, Claim, LedgerClosed, NextStart, TopicCatalog, TopicState
from offloader.model import (
    FailureKind,
    Gap,
    GapKind,
    LedgerList,
    LedgerSpan,
    Position,
    RollReason,
    SegmentLayout,
    Source,
    TopicName,
)
from offloader.offload.core import segments
from offloader.offload.driver.sealing import seal
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

T = TopicName.parse("acme/orders/placed")
LEDGERS = LedgerList((LedgerSpan(7, None),))


def fresh() -> Callable[[], str]:
    numbers = iter(range(1000))
    return lambda: f"t{next(numbers)}"


def sealing(uuid: str, first: int, last: int) -> TopicState:
    """A segment in Sealing that holds nothing but a gap: only its catalog record is left to write."""
    state = segments.assigned(
        TopicState(T),
        uuid=uuid,
        start=NextStart(Position(0, 7, first)),
        source=Source.BROKER,
        cuts=SegmentLayout(),
        now=1,
        predecessor=None,
    )
    state = segments.closing(state, Position(0, 7, last), RollReason.AGE)
    return segments.complete(state, (Gap(7, first, last + 1, kind=GapKind.ABORTED),), LEDGERS, 2)


def first_try(state: TopicState) -> TopicState:
    return state


def tried_before(state: TopicState) -> TopicState:
    return segments.failed(state, FailureKind.UNKNOWN, "an answer was lost", 3, 0.5)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def loaded(store: MemoryStore) -> CatalogHead:
    catalogs = Catalogs(store, "app")
    catalog = catalogs.append(CatalogHead(T), Claim("app", 0, 1, Position(0, 7, 0), 1))
    for n in range(5):
        catalog = seal(store, catalogs, catalog, sealing(f"u{n}", 10 * n, 10 * n + 9))
    return catalog


def read_back(store: MemoryStore) -> TopicCatalog:
    return Catalogs(store, "app").load(T)


def slots(store: MemoryStore) -> int:
    return len(list(store.list(catalog_folder(T))))


def test_a_seal_reads_nothing_of_the_catalog_that_the_driver_has(store, loaded):
    faults = StoreFaults()
    faulty = FaultyStore(store, faults)
    catalog = seal(faulty, Catalogs(faulty, "app"), loaded, sealing("u5", 50, 59))
    assert [s.uuid for s in read_back(store).segments] == ["u0", "u1", "u2", "u3", "u4", "u5"]
    assert catalog == read_back(store).head
    assert faults.calls == {"put": 2}, "the record beside the segment, and the commit"


@pytest.mark.parametrize("again", [first_try, tried_before])
def test_a_repeated_seal_finds_its_own_commit(store, loaded, again):
    """Also where the process that has committed it ended before its journal said so: the next one knows of no try."""
    for state in (sealing("u5", 50, 59), again(sealing("u5", 50, 59))):
        catalog = seal(store, Catalogs(store, "app"), loaded, state)
        assert catalog.newest.uuid == "u5"
    assert slots(store) == 7


def test_only_a_later_try_asks_for_what_is_committed_since(store, loaded):
    faults = StoreFaults()
    faulty = FaultyStore(store, faults)
    seal(faulty, Catalogs(faulty, "app"), loaded, tried_before(sealing("u5", 50, 59)))
    assert faults.calls == {"list": 1, "put": 2}


def test_records_that_were_written_meanwhile_stay_before_the_segment(store, loaded):
    Catalogs(store, "app").append(loaded, LedgerClosed(0, 6, 3))
    catalog = seal(store, Catalogs(store, "app"), loaded, sealing("u5", 50, 59))
    assert (read_back(store).closed, catalog.newest.uuid, catalog.next_slot) == ({(0, 6): 3}, "u5", 8)


def test_an_overtaken_driver_s_segment_gives_way_to_the_range_s_commit(store, loaded):
    seal(store, Catalogs(store, "app"), loaded, sealing("newcomer", 50, 64))
    with pytest.raises(IntegrityError, match="does not continue"):
        seal(store, Catalogs(store, "app"), loaded, sealing("u5", 50, 59))
    catalog = seal(store, Catalogs(store, "app"), loaded, tried_before(sealing("u5", 50, 59)))
    assert catalog == read_back(store).head
    assert [s.uuid for s in read_back(store).segments[-2:]] == ["u4", "newcomer"]
    assert slots(store) == 7


def test_a_newcomer_s_commit_while_ours_is_under_way_is_not_overwritten(store, loaded):
    """It is there when ours is put: refused, read back, and found not to continue any more."""

    def overtake() -> None:
        seal(store, Catalogs(store, "app"), loaded, sealing("newcomer", 50, 64))

    faulty = FaultyStore(store, StoreFaults([StoreFault("put", Effect.HOOK, hook=overtake)]))
    with pytest.raises(IntegrityError, match="does not continue"):
        seal(faulty, Catalogs(faulty, "app"), loaded, sealing("u5", 50, 59))
    catalog = seal(store, Catalogs(store, "app"), loaded, tried_before(sealing("u5", 50, 59)))
    assert catalog == read_back(store).head
    assert [s.uuid for s in read_back(store).segments[-2:]] == ["u4", "newcomer"]


def test_a_topic_that_was_taken_over_is_not_committed_to(store, loaded):
    Catalogs(store, "heir").take_over_claim(loaded, "app", 9)
    with pytest.raises(ClaimedByOtherError, match="claimed by heir, not by app"):
        seal(store, Catalogs(store, "app"), loaded, sealing("u5", 50, 59))
    assert slots(store) == 7
