"""The demo's orders can be read by a person, and are of several kinds."""

import json
import zlib
from itertools import islice

import pytest

from dev.demo.demo import TOPICS
from dev.demo.orders import events


@pytest.mark.parametrize("topic", TOPICS)
def test_events_are_json_with_a_kind_and_an_order_under_their_customer_s_key(topic: str) -> None:
    found = list(islice(events(topic), 200))
    told = [json.loads(event.payload) for event in found]
    assert [event.key for event in found] == [t["customer"] for t in told]
    assert [event.properties["number"] for event in found] == [str(n) for n in range(1, 201)]
    assert {t["event"] for t in told} == (
        {"audit-created", "audit-paid", "audit-shipped"} if topic == "audit-log" else {f"order-{topic}"}
    )
    assert found == list(islice(events(topic), 200))


def test_an_order_is_the_same_in_every_topic() -> None:
    for created, paid, shipped in islice(zip(events("created"), events("paid"), events("shipped"), strict=True), 50):
        order, payment, parcel = (json.loads(event.payload) for event in (created, paid, shipped))
        assert order["order"] == payment["order"] == parcel["order"]
        assert order["customer"] == payment["customer"] == parcel["customer"]
        assert order["cents"] == payment["cents"] == sum(i["quantity"] * i["cents"] for i in order["items"])
        assert order["town"] == parcel["town"]


def test_orders_are_of_many_sizes_and_compress_as_those_of_a_shop_do() -> None:
    payloads = [event.payload for event in islice(events("created"), 2_000)]
    sizes = sorted(map(len, payloads))
    assert sizes[-1] > 5 * sizes[0]
    assert len(zlib.compress(b"".join(payloads))) < sum(sizes) / 5
