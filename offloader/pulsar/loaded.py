"""Which broker has a topic loaded, without making one load it: whatever asks for a topic's statistics by its name does."""

from __future__ import annotations

from dataclasses import replace

from offloader.model import TopicName
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.shapes import mapping

STATISTICS_AGE_MS = 60_000
"""How old a broker's statistics may be (`statsUpdateFrequencyInSecs`; seen with 4.0.7)."""


def loaded_by(settings: PulsarSettings, brokers: list[str], topic: TopicName) -> str | None:
    """The first of these brokers (`host:port` of their admin REST) whose statistics have the topic. For super users.

    What was loaded or unloaded in the last `STATISTICS_AGE_MS` is not seen. Raises BrokerUnavailableError, AuthorizationFailedError.
    """
    scheme = settings.admin_url.partition("://")[0]
    return next((broker for broker in brokers if _has(replace(settings, admin_url=f"{scheme}://{broker}"), topic)), None)


def _has(settings: PulsarSettings, topic: TopicName) -> bool:
    client = RestClient(settings)
    try:
        said = mapping(client.get("broker-stats/topics"), "the broker's statistics", or_none=True)
    finally:
        client.close()
    bundles = mapping(said.get(topic.namespace), "a namespace's statistics", or_none=True)
    loaded = (mapping(bundle, "a bundle's statistics").get("persistent", {}) for bundle in bundles.values())
    return any(str(topic) in mapping(topics, "a bundle's topics") for topics in loaded)
