"""Ages are computed with the earliest clock, and only where a clock of another host agrees with ours."""

from __future__ import annotations

import pytest

from offloader.errors import BrokerUnavailableError, StoreUnavailableError
from offloader.lifecycle.clocks import Clocks, has_own_clock, is_this_host
from offloader.storage.settings import StoreSettings

MOST_APART_MS = 300_000
READ_AGAIN_MS = 60_000

NOW = 1_800_000_000_000
DAY_MS = 86_400_000


class Hands:
    """The clocks of this host, the store and the broker, and a steady one."""

    def __init__(self) -> None:
        self.host = self.store = self.broker = NOW
        self.steady = 0
        self.asked = 0

    def ask_store(self) -> int | None:
        self.asked += 1
        return self.store

    def clocks(self, **independent: bool) -> Clocks:
        ask = {"store_ms": self.ask_store, "broker_ms": lambda: self.broker, "steady_ms": lambda: self.steady}
        return Clocks(host_ms=lambda: self.host, **ask, **independent)

    def pass_time(self, ms: int) -> None:
        self.steady += ms
        self.host += ms
        self.store += ms
        self.broker += ms


@pytest.mark.parametrize("ahead", [MOST_APART_MS + 1, 400 * DAY_MS])
@pytest.mark.parametrize("name", ["host", "store", "broker"])
def test_a_clock_that_is_ahead_makes_nothing_old_and_ages_wait(name, ahead):
    hands = Hands()
    setattr(hands, name, NOW + ahead)
    compared = hands.clocks(store_is_independent=True).compare()
    assert compared.now_ms == NOW
    assert compared.differ
    assert "ahead of" in compared.doubt


@pytest.mark.parametrize("name", ["host", "store", "broker"])
def test_a_clock_that_is_behind_makes_ages_wait(name):
    hands = Hands()
    setattr(hands, name, NOW - MOST_APART_MS - 1)
    compared = hands.clocks(broker_is_independent=True).compare()
    assert compared.now_ms == NOW - MOST_APART_MS - 1
    assert compared.doubt


def test_clocks_that_differ_by_five_minutes_are_believed():
    hands = Hands()
    hands.host += MOST_APART_MS
    assert hands.clocks(store_is_independent=True).compare().doubt == ""


def test_without_a_clock_of_another_host_ages_wait():
    hands = Hands()
    compared = hands.clocks().compare()
    assert "only this host tells the time" in compared.doubt
    assert (compared.now_ms, compared.differ) == (NOW, False)


def test_a_clock_that_is_set_takes_effect_at_once_and_others_are_not_asked_each_time():
    hands = Hands()
    clocks = hands.clocks(store_is_independent=True)
    hands.host = NOW + 400 * DAY_MS
    assert clocks.compare().differ
    hands.host = NOW
    assert clocks.compare().doubt == ""
    hands.pass_time(READ_AGAIN_MS - 1)
    assert clocks.now_ms() == NOW + READ_AGAIN_MS - 1
    hands.host += 400 * DAY_MS
    assert clocks.compare().differ
    assert hands.asked == 1
    hands.pass_time(1)
    assert clocks.now_ms() == NOW + READ_AGAIN_MS
    assert hands.asked == 2


def test_a_broker_that_does_not_answer_tells_no_time():
    def away() -> int:
        raise BrokerUnavailableError("it is away")

    hands = Hands()
    clocks = Clocks(host_ms=lambda: hands.host, broker_ms=away, broker_is_independent=True)
    assert "only this host" in clocks.compare().doubt
    clocks = Clocks(host_ms=lambda: hands.host, store_ms=lambda: NOW - 1, broker_ms=away, store_is_independent=True)
    assert clocks.compare().doubt == ""
    assert clocks.now_ms() == NOW - 1


def test_a_store_that_does_not_answer_is_an_error():
    def away() -> int:
        raise StoreUnavailableError("it is away")

    with pytest.raises(StoreUnavailableError):
        Clocks(store_ms=away).now_ms()


@pytest.mark.parametrize(
    ("root", "endpoint", "own"),
    [
        ("file:///archive", None, False),
        ("memory://archive", None, False),
        ("webhdfs://localhost:9870/archive", None, False),
        ("webhdfs://127.0.0.1:9870/archive", None, False),
        ("webhdfs://192.0.2.1:9870/archive", None, True),
        ("s3://archive", None, True),
        ("s3://archive", "http://localhost:9000", False),
        ("s3://archive", "http://[::1]:9000", False),
        ("s3://archive", "https://192.0.2.1", True),
        ("gs://archive", None, True),
        ("az://archive", "http://127.0.0.1:10000/account", False),
        ("sftp://192.0.2.1/archive", None, True),
        ("local:///archive", None, False),
    ],
)
def test_a_store_of_this_host_has_no_clock_of_its_own(root, endpoint, own):
    assert has_own_clock(StoreSettings(root, endpoint=endpoint)) is own


def test_a_name_without_an_address_may_be_this_host():
    assert is_this_host("")
    assert is_this_host("localhost")
    assert not is_this_host("192.0.2.1")
