"""Claims of topics: the newest one counts and alone stays, whoever is late, and whatever answer is lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import OutcomeUnknownError
from offloader.gateway.owners.claim import TopicClaim
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.protocol.answers import Address
from offloader.lifecycle.bucket.names import KeyStanding, NamesInForce, placed
from offloader.metadata.journals import Journals
from offloader.metadata.layout import gateway_claims_folder, parse_gateway_claim_key, slot_name
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

TOPIC = TopicName("acme", "orders", "placed-partition-3")
OTHER = TopicName("acme", "orders", "paid")
TOKENS = itertools.count()


def claims_of(store) -> ClaimLog:
    return ClaimLog(store, lambda: f"t{next(TOKENS)}")


def claim(number: int, gateway: str = "one", topic: TopicName = TOPIC) -> TopicClaim:
    return TopicClaim(topic, number, gateway, Address(f"pulsar://{gateway}:6650"), 17)


@given(
    st.builds(
        TopicClaim,
        st.just(TOPIC),
        st.integers(0, 2**62),
        st.text(),
        st.builds(Address, st.text(), st.text(), st.just(value=False)),
        st.integers(0, 2**62),
    )
)
def test_a_claim_is_read_as_it_was_written(written: TopicClaim) -> None:
    store = MemoryStore()
    assert claims_of(store).append(written)
    assert claims_of(store).newest(TOPIC) == written


def test_the_newest_claim_counts_and_alone_stays() -> None:
    store = MemoryStore()
    claims = claims_of(store)
    assert claims.newest(TOPIC) is None
    for number in range(3):
        assert claims.append(claim(number))
    assert claims.append(claim(0, topic=OTHER))
    assert claims.newest(TOPIC) == claim(2)
    assert claims.newest_of_all() == {TOPIC: 2, OTHER: 0}
    assert [key for key, _ in store.list(gateway_claims_folder(TOPIC))] == [gateway_claims_folder(TOPIC) + slot_name(2)]


def test_of_two_who_claim_at_the_same_time_one_has_it() -> None:
    claims = claims_of(MemoryStore())
    assert claims.append(claim(0, "one"))
    assert not claims.append(claim(0, "two"))
    assert claims.newest(TOPIC) == claim(0, "one")


def test_who_was_paused_does_not_win_a_number_that_is_free_again() -> None:
    claims = claims_of(MemoryStore())
    for number in range(5):
        claims.append(claim(number))
    assert not claims.append(claim(3, "late"))
    assert claims.newest(TOPIC) == claim(4)
    assert claims.append(claim(5))
    assert claims.newest_of_all() == {TOPIC: 5}


def test_after_a_lost_answer_the_claim_is_read_back() -> None:
    faults = StoreFaults([StoreFault("put", Effect.LOST)])
    claims = claims_of(FaultyStore(MemoryStore(), faults))
    with pytest.raises(OutcomeUnknownError):
        claims.append(claim(0))
    assert claims.newest(TOPIC) == claim(0)


def test_what_cannot_be_removed_goes_with_the_next_claim() -> None:
    store = MemoryStore()
    faults = StoreFaults([StoreFault("delete")])
    claims = claims_of(FaultyStore(store, faults))
    claims.append(claim(0))
    assert claims.append(claim(1))
    assert claims.newest(TOPIC) == claim(1)
    claims.append(claim(2))
    assert len(list(store.list(gateway_claims_folder(TOPIC)))) == 1


def test_what_is_removed_while_it_is_read_is_looked_for_again() -> None:
    store = MemoryStore()
    claims_of(store).append(claim(0))
    faults = StoreFaults([StoreFault("read", Effect.HOOK, hook=lambda: claims_of(store).append(claim(1, "two")))])
    assert claims_of(FaultyStore(store, faults)).newest(TOPIC) == claim(1, "two")


def test_a_damaged_claim_is_nobodys_and_its_number_stays_a_fence(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    key = gateway_claims_folder(TOPIC) + slot_name(7)
    store.put(key, b"damaged")
    assert claims_of(store).newest(TOPIC) == TopicClaim(TOPIC, 7)
    assert not claims_of(store).append(claim(6))
    assert claims_of(store).append(claim(8))
    assert {record.__dict__["see"] for record in caplog.records} == {"gateway-claim-damaged"}


def test_the_buckets_scan_knows_claims() -> None:
    key = gateway_claims_folder(TOPIC) + slot_name(7)
    assert key == f"_gateways/acme/orders/placed-partition-3/{slot_name(7)}"
    assert parse_gateway_claim_key(key) == (TOPIC, 7)
    assert placed(key, 1, NamesInForce(Journals({}), "cluster")).standing is KeyStanding.NAMED
    for other in ("_gateways/a/b/c", "_gateways/a/b/c/7", f"_claims/a/b/c/{slot_name(7)}"):
        assert parse_gateway_claim_key(other) is None
