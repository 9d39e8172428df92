"""What a broker reports of the topics that it has loaded."""

from __future__ import annotations

from typing import Any

import httpx

from offloader.model import MIB
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings

LARGEST_STATISTICS = 512 * MIB  # of one broker: 1 to 2 kB a topic, and as much a client


def broker_statistics(broker: PulsarSettings, transport: httpx.BaseTransport | None = None) -> Any:
    """Of this very broker's topics, up to a minute old (`statsUpdateFrequencyInSecs`; 4.0.7). For super users.

    Asking for a topic by its name would make a broker load it; this does not. Raises BrokerUnavailableError,
    AuthorizationFailedError."""
    client = RestClient(broker, transport=transport, largest=LARGEST_STATISTICS)
    try:
        return client.get("broker-stats/topics")
    finally:
        client.close()
