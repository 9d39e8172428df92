"""What CONSUMER_STATS tells of a consumer. Only C++'s client asks for it, so this one speaks the protocol itself."""

from __future__ import annotations

from collections.abc import Sequence

from offloader._proto.pulsar_wire_pb2 import (
    BaseCommand,
    ConsumerStats,
    ConsumerStatsResponse,
    KeySharedMeta,
    MessageIdData,
    Subscribe,
)
from offloader.pulsar.commands import acknowledge, acknowledge_each, command, connect, flow, lookup
from tests.gateway.raw import RawClient

KINDS = (Subscribe.EXCLUSIVE, Subscribe.SHARED, Subscribe.FAILOVER, Subscribe.KEY_SHARED)
OF_ITS_OWN = ("address", "connected_since")  # of each connection
RATES = ("message_rate_out", "message_throughput_out", "message_rate_redeliver", "message_rate_expired")  # of a minute
_CONSUMER = 5


def stats_transcript(url: str, topic: str, kinds: Sequence[Subscribe.Type] = KINDS) -> list[str]:
    """After each step, for these types of subscriptions."""
    said: list[str] = []
    for kind in kinds:
        with RawClient(url) as client:
            client.send(connect("", b""), lookup(1, topic, authoritative=False), _subscribe(topic, kind))
            client.until("success")

            def tell(step: str, client: RawClient = client) -> None:
                said.append(f"{step}: {_told(client)}")

            tell(f"{Subscribe.Type.Name(kind)} has subscribed")
            client.send(flow(_CONSUMER, 12))
            places = [_next(client), _next(client)]
            tell("got two entries at least")
            client.send(acknowledge_each(_CONSUMER, 3, places[1:]))
            client.until("ack_response")
            tell("acknowledged the second one")
            client.send(acknowledge(_CONSUMER, 4, places[1].ledger_id, places[1].entry_id))
            client.until("ack_response")
            tell("acknowledged up to it")
    return said


def _subscribe(topic: str, kind: Subscribe.Type) -> BaseCommand:
    meta = {"key_shared": KeySharedMeta(mode=KeySharedMeta.AUTO_SPLIT)} if kind == Subscribe.KEY_SHARED else {}
    return command(
        subscribe=Subscribe(
            topic=topic, subscription=f"stats-{Subscribe.Type.Name(kind)}", type=kind, consumer_id=_CONSUMER,
            request_id=2, consumer_name="told", initial_position=Subscribe.EARLIEST, **meta,
        )
    )  # fmt: skip


def _next(client: RawClient) -> MessageIdData:
    return client.until("message").message.message_id


def _told(client: RawClient) -> str:
    client.send(command(consumer_stats=ConsumerStats(consumer_id=_CONSUMER, request_id=8)))
    found: ConsumerStatsResponse = client.until("consumer_stats_response").consumer_stats_response
    values = {field.name: value for field, value in found.ListFields() if field.name not in RATES}
    return str(values | {name: "told" for name in OF_ITS_OWN if values.get(name)})
