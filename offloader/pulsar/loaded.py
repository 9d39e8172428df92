"""What a broker has loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from offloader.errors import ProtocolError
from offloader.model import MIB
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings

LARGEST_STATISTICS = 512 * MIB  # of one broker: 1 to 2 kB a topic, and as much a client


def topics_loaded_at(broker: PulsarSettings, transport: httpx.BaseTransport | None = None) -> Iterator[str]:
    """The persistent topics that this very broker has loaded, by its statistics. For super users.

    Asking for a topic by its name would make a broker load it; this does not. What changed in the last
    `STATISTICS_AGE_MS` is not seen. Raises BrokerUnavailableError, AuthorizationFailedError."""
    client = RestClient(broker, transport=transport, largest=LARGEST_STATISTICS)
    try:
        found = client.get("broker-stats/topics")
    finally:
        client.close()
    return _topics_of(found)


def _topics_of(namespaces: object) -> Iterator[str]:
    """`{namespace: {bundle: {"persistent": {topic: …}}}}`; a broker without topics may say nothing."""
    for bundles in _object({} if namespaces is None else namespaces).values():
        for bundle in _object({} if bundles is None else bundles).values():
            yield from _object(_object(bundle).get("persistent", {}))


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError(f"a broker's statistics: it answered {type(value).__name__} where an object belongs")
    return value
