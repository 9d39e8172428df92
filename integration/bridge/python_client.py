"""`python -m integration.bridge.python_client SERVICE_URL`: pulsar-client as a process; clients.py says how."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

import pulsar

AFTERWARDS_MS = 300
TYPES = {"Shared": pulsar.ConsumerType.Shared, "Key_Shared": pulsar.ConsumerType.KeyShared}


def serve(client: pulsar.Client, request: dict[str, Any]) -> None:
    """One request, to its file."""
    to = Path(request["to"])
    part = Path(f"{to}.part")
    with part.open("w") as out:
        try:
            end = consume(client, request, out) if "subscription" in request else read(client, request, out)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
            end = repr(error)
        out.write(json.dumps({"end": end}) + "\n")
    part.rename(to)


def read(client: pulsar.Client, request: dict[str, Any], out: TextIO) -> str:
    start = pulsar.MessageId.earliest
    if "start" in request:
        ledger, entry, batch = request["start"]
        start = pulsar.MessageId(-1, ledger, entry, batch)
    keys = {"crypto_key_reader": _keys(request)} if "key" in request else {}
    reader = client.create_reader(
        request["topic"], start, is_read_compacted=request["compacted"], start_message_id_inclusive=True, **keys
    )
    try:
        return _all(reader.read_next, request, out, lambda _: None)
    finally:
        reader.close()


def consume(client: pulsar.Client, request: dict[str, Any], out: TextIO) -> str:
    keys = {"crypto_key_reader": _keys(request)} if "key" in request else {}
    consumer = client.subscribe(
        request["topic"],
        request["subscription"],
        consumer_type=TYPES[request["type"]],
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
        **keys,
    )
    try:
        end = _all(consumer.receive, request, out, consumer.acknowledge)
        time.sleep(0.3)  # acknowledgements are sent together after a tenth of a second
        return end
    finally:
        consumer.close()


def _all(receive: Any, request: dict[str, Any], out: TextIO, acknowledge: Any) -> str:
    every = request.get("every", 0)
    for _ in range(request["count"]):
        try:
            message = receive(request["patience"] * 1000)
        except pulsar.Timeout:
            return "patience"
        acknowledged = every > 0 and message.message_id().entry_id() % every != every - 1
        if acknowledged:
            acknowledge(message)
        out.write(json.dumps({**described(message), "acknowledged": acknowledged}) + "\n")
    try:
        more = receive(AFTERWARDS_MS) if request["whole"] else None
    except pulsar.Timeout:
        more = None
    return "count" if more is None else f"more: {more.message_id()}"


def described(message: pulsar.Message) -> dict[str, Any]:
    """A message as all clients say it."""
    place, value = message.message_id(), message.data()
    return {
        "ledger": place.ledger_id(),
        "entry": place.entry_id(),
        "batch": place.batch_index(),
        "key": message.partition_key(),
        "properties": message.properties(),
        "published": message.publish_timestamp(),
        "event": message.event_timestamp(),
        "size": len(value),
        "sha256": hashlib.sha256(value).hexdigest(),
    }


def _keys(request: dict[str, Any]) -> pulsar.CryptoKeyReader:
    return pulsar.CryptoKeyReader("", request["key"])


def main() -> None:
    """Until standard input ends."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(sys.argv[1], operation_timeout_seconds=180, logger=logger)
    for line in sys.stdin:
        threading.Thread(target=serve, args=(client, json.loads(line)), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
