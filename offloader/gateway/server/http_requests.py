"""What the GET requests of clients do: the same as the commands of the binary protocol."""

from __future__ import annotations

from typing import Any

from offloader.gateway.protocol import http_answers
from offloader.gateway.protocol.answers import Address
from offloader.gateway.protocol.http_answers import HttpQuestion
from offloader.gateway.server.ports import ServedTopics
from offloader.gateway.server.requests import topic_of


async def answer(asked: HttpQuestion, topics: ServedTopics, role: str, http: Address) -> Any:
    """Raises RefusedError, and what the store raises. `http`: where this gateway answers such requests."""
    if asked.kind == "topics":
        names = await topics.topics(asked.namespace, role)
        return names if asked.persistent else []
    topic = topic_of(asked.topic)
    if asked.kind == "partitions":
        return http_answers.partitions(await topics.partitions(topic, role))
    if asked.kind == "lookup":
        return http_answers.looked_up(await topics.address(topic, role), http)
    return http_answers.schema(await topics.schema(topic, asked.version, role))
