"""`python -m integration.gateway.python_client SERVICE_URL`: pulsar-client as a process; clients.py says how."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pulsar
from pulsar.schema import BytesSchema, Integer, JsonSchema, Record, String

ACKNOWLEDGED_MS = 250  # acknowledgements are sent together after a tenth of a second
HANGS_S = 180
TYPES = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Shared": pulsar.ConsumerType.Shared,
    "Failover": pulsar.ConsumerType.Failover,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}
Asked = dict[str, Any]


class Order(Record):
    """What messages with a schema hold."""

    customer = String()
    amount = Integer()


def id_of(said: list[int] | str) -> pulsar.MessageId:
    if isinstance(said, str):
        found: pulsar.MessageId = getattr(pulsar.MessageId, said)
        return found
    ledger, entry, partition, batch = said
    return pulsar.MessageId(partition, ledger, entry, batch)


def said(place: pulsar.MessageId) -> list[int]:
    return [place.ledger_id(), place.entry_id(), place.partition(), place.batch_index()]


def described(message: pulsar.Message, *, decoded: bool) -> Asked:
    value = message.data()
    found = {
        "id": said(message.message_id()),
        "topic": message.topic_name(),
        "sha256": hashlib.sha256(value).hexdigest()[:16],
        "size": len(value),
        "key": message.partition_key(),
        "ordering": message.ordering_key(),
        "properties": dict(sorted(message.properties().items())),
        "published": message.publish_timestamp(),
        "event": message.event_timestamp(),
        "redeliveries": message.redelivery_count(),
        "producer": message.producer_name() if hasattr(message, "producer_name") else "",  # not in 3.4
        "schema": message.schema_version().hex() if isinstance(message.schema_version(), bytes) else "",
    }
    return {**found, "value": [message.value().customer, message.value().amount]} if decoded else found


class Programme:
    """What it was asked for: readers and consumers by name, and of each what it received."""

    def __init__(self, url: str) -> None:
        self._client = pulsar.Client(
            url, operation_timeout_seconds=HANGS_S, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        self._made: dict[str, Any] = {}
        self._received: dict[str, dict[str, pulsar.Message]] = {}
        self._decoded: set[str] = set()

    def reader(self, asked: Asked) -> None:
        self._keep(
            asked,
            self._client.create_reader(
                asked["topic"],
                id_of(asked["start"]),
                receiver_queue_size=asked.get("queue", 1000),
                start_message_id_inclusive=asked.get("inclusive", False),
                is_read_compacted=asked.get("compacted", False),
                **self._schema(asked),
                **self._keys(asked),
            ),
        )

    def consumer(self, asked: Asked) -> None:
        topic = asked["topics"][0] if len(asked.get("topics", ())) == 1 else asked.get("topics")
        latest = asked.get("position", "Earliest") == "Latest"
        more: Asked = {}
        if "ranges" in asked:
            ranges = [tuple(each) for each in asked["ranges"]]
            more["key_shared_policy"] = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, False, ranges)
        self._keep(
            asked,
            self._client.subscribe(
                re.compile(asked["pattern"]) if "pattern" in asked else topic,
                asked["subscription"],
                consumer_type=TYPES[asked["type"]],
                initial_position=pulsar.InitialPosition.Latest if latest else pulsar.InitialPosition.Earliest,
                receiver_queue_size=asked.get("queue", 1000),
                negative_ack_redelivery_delay_ms=asked.get("nack_ms", 60_000),
                unacked_messages_timeout_ms=asked.get("ack_timeout_ms"),
                batch_index_ack_enabled=asked.get("batch_index", False),
                consumer_name=asked.get("name"),
                is_read_compacted=asked.get("compacted", False),
                start_message_id_inclusive=asked.get("inclusive", False),
                **more,
                **self._schema(asked),
                **self._keys(asked),
            ),
        )

    def take(self, asked: Asked) -> Asked:
        """So many messages, each within some time."""
        made = self._made[asked["of"]]
        receive: Callable[[int], pulsar.Message] = getattr(made, "receive", None) or made.read_next
        messages: list[Asked] = []
        while len(messages) < asked["count"]:
            try:
                message = receive(asked["ms"])
            except pulsar.Timeout:
                return {"messages": messages, "end": "nothing"}
            found = described(message, decoded=asked["of"] in self._decoded)
            self._received[asked["of"]][str(found["id"])] = message
            messages.append(found)
        return {"messages": messages, "end": "count"}

    def ack(self, asked: Asked) -> None:
        made = self._made[asked["of"]]
        acknowledge = made.acknowledge_cumulative if asked.get("cumulative") else made.acknowledge
        for each in asked["ids"]:
            acknowledge(self._received[asked["of"]][str(each)])
        time.sleep(ACKNOWLEDGED_MS / 1000)

    def nack(self, asked: Asked) -> None:
        for each in asked["ids"]:
            self._made[asked["of"]].negative_acknowledge(self._received[asked["of"]][str(each)])

    def redeliver(self, asked: Asked) -> None:
        self._made[asked["of"]].redeliver_unacknowledged_messages()

    def seek(self, asked: Asked) -> None:
        to = asked["to"]
        self._made[asked["of"]].seek(to if isinstance(to, int) else id_of(to))

    def available(self, asked: Asked) -> bool:
        return bool(self._made[asked["of"]].has_message_available())

    def last(self, asked: Asked) -> list[int]:
        return said(self._made[asked["of"]].get_last_message_id())

    def unsubscribe(self, asked: Asked) -> None:
        self._made[asked["of"]].unsubscribe()

    def close(self, asked: Asked) -> None:
        self._made.pop(asked["of"]).close()

    def table(self, asked: Asked) -> Asked:
        table = self._client.create_table_view(asked["topic"])
        found: Asked = {}
        table.for_each(lambda key, value: found.update({key: hashlib.sha256(value).hexdigest()[:16]}))
        table.close()
        return dict(sorted(found.items()))

    def partitions(self, asked: Asked) -> list[str]:
        return list(self._client.get_topic_partitions(asked["topic"]))

    def _keep(self, asked: Asked, made: object) -> None:
        self._made[asked["as"]], self._received[asked["as"]] = made, {}
        if asked.get("schema"):
            self._decoded.add(asked["as"])

    def _keys(self, asked: Asked) -> Asked:
        return {"crypto_key_reader": pulsar.CryptoKeyReader("", asked["keys"])} if asked.get("keys") else {}

    def _schema(self, asked: Asked) -> Asked:
        return {"schema": JsonSchema(Order) if asked.get("schema") else BytesSchema()}


def main() -> None:
    """Until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # where the library logs
    programme = Programme(sys.argv[1])
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": getattr(programme, asked["do"])(asked)}
        except (AttributeError, TypeError):  # what this version of the client does not have
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
            answer = {"error": type(error).__name__}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
