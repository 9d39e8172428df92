"""`python -m benchmarks.gateway_client SERVICE_URL TOPIC COUNT`: Pulsar's own Python client reads all of a topic.

Prints its seconds to the first message, to the last one, and of the processor."""

from __future__ import annotations

import json
import sys
import time

import pulsar

HANGS_MS = 600_000


def main(url: str, topic: str, count: int) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    begun = time.perf_counter()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    reader.read_next(HANGS_MS)
    first = time.perf_counter() - begun
    for _ in range(count - 1):
        reader.read_next(HANGS_MS)
    print(json.dumps({"first": first, "all": time.perf_counter() - begun, "cpu": time.process_time()}))
    client.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
