"""A schema registry that answers as Pulsar's does, and the schemas that a topic has there."""

from __future__ import annotations

import json
from collections.abc import Sequence

import httpx

from offloader.model import TopicName
from offloader.ports.admin import TopicSchema
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings

PREFIX = "/admin/v2/schemas/"


class FakeRegistry:
    """By topic what was uploaded, in order. `refused`: definitions that follow no other. `forbidden`: uploads are."""

    def __init__(self) -> None:
        self.topics: dict[str, list[tuple[str, str, dict[str, str]]]] = {}
        self.refused: set[str] = set()
        self.forbidden = False
        self.uploads: list[str] = []
        self.tried: set[str] = set()

    def rest(self) -> RestClient:
        settings = PulsarSettings(service_url="pulsar://localhost:1", admin_url="http://localhost:2")
        return RestClient(settings, transport=httpx.MockTransport(self.answer))

    def add(self, topic: TopicName, *schemas: TopicSchema) -> None:
        name = f"{topic.namespace}/{topic.encoded}"
        self.topics.setdefault(name, []).extend((one.type, one.data.decode(), dict(one.properties)) for one in schemas)

    def definitions(self, topic: TopicName) -> list[tuple[str, str]]:
        return [(kind, data) for kind, data, _ in self.topics.get(f"{topic.namespace}/{topic.encoded}", [])]

    def answer(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path.startswith(PREFIX)
        tenant, namespace, topic, *what = request.url.path.removeprefix(PREFIX).split("/")
        name = f"{tenant}/{namespace}/{topic}"
        has = self.topics.get(name, [])
        if request.method == "GET" and what == ["schemas"]:
            if not has:
                return _problem(404, "Schemas not found")
            found = [_shown(number, one) for number, one in enumerate(has)]
            return httpx.Response(200, json={"getSchemaResponses": found})
        if request.method == "GET":
            number = int(what[1])
            there = number < len(has)
            return httpx.Response(200, json=_shown(number, has[number])) if there else _problem(404, "Schema not found")
        if self.forbidden and what == ["schema"]:
            return _problem(403, "only the tenant's administrators")
        if request.method == "DELETE":
            assert request.url.params["force"] == "true"
            self.topics.pop(name, None)
            return httpx.Response(200, json={"version": 0})
        said = json.loads(request.content)
        wanted = said["type"], said["schema"]
        known = next((number for number, (kind, data, _) in enumerate(has) if (kind, data) == wanted), None)
        if what == ["version"]:
            return httpx.Response(200, json={"version": -1 if known is None else known})
        assert what == ["schema"]
        self.uploads.append(topic)
        if known is None:
            if has and said["schema"] in self.refused:
                return _problem(409, "Incompatible schema")
            known = len(has)
            self.topics[name] = [*has, (*wanted, said["properties"])]
        return httpx.Response(200, json={"version": {"version": known}})


def schemas_of(*definitions: str, kind: str = "AVRO", first: int = 0) -> Sequence[TopicSchema]:
    """Versions in order."""
    return [TopicSchema(first + number, kind, text.encode()) for number, text in enumerate(definitions)]


def _shown(number: int, schema: tuple[str, str, dict[str, str]]) -> dict[str, object]:
    kind, data, properties = schema
    return {"version": number, "type": kind, "timestamp": 1, "data": data, "properties": properties}


def _problem(status: int, reason: str) -> httpx.Response:
    return httpx.Response(status, json={"reason": reason})
