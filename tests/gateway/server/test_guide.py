"""Where a connection's next lookup leads: to a broker only if it is certainly of whoever was led there."""

from __future__ import annotations

from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.guide import WAITS, LookupGuide
from offloader.model import TopicName

ONE, OTHER = (TopicName.parse(f"persistent://public/default/{name}") for name in ("one", "other"))
BROKER = Address("pulsar://broker:6650")


def led(at: float = 100.0) -> LookupGuide:
    guide = LookupGuide()
    guide.lead(ONE, BROKER, at)
    return guide


def test_the_next_lookup_of_that_topic_leads_there_once() -> None:
    guide = led()
    assert guide.take(OTHER, 100.1) is None
    assert guide.take(ONE, 100.1) == BROKER
    assert guide.take(ONE, 100.1) is None


def test_one_that_comes_late_leads_here() -> None:
    assert led().take(ONE, 100.0 + WAITS) is None


def test_who_asks_for_partitions_subscribes_for_the_first_time() -> None:
    guide = led()
    guide.partitions_asked(100.1)
    assert guide.take(ONE, 100.2) is None
    guide.lead(ONE, BROKER, 100.3)  # its lookup is still to come
    assert guide.take(ONE, 100.4) is None
    assert not guide.is_settled(100.4)
    assert guide.is_settled(100.1 + WAITS)


def test_another_consumer_that_is_closed_looks_up_too() -> None:
    guide = led()
    guide.clear()
    assert guide.take(ONE, 100.1) is None
