"""What clients with an `http://` service URL and `pulsar-admin topics list` ask, and how brokers answer it. Pure."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from offloader.gateway.protocol.answers import Address
from offloader.gateway.values import ErrorCode
from offloader.ports.admin import TopicSchema

_NAMESPACE = r"(?P<namespace>[^/]+/[^/]+)"
_TOPIC = rf"{_NAMESPACE}/(?P<name>[^/]+)"
_QUESTIONS = (
    ("partitions", re.compile(rf"/admin/v2/persistent/{_TOPIC}/partitions")),
    ("lookup", re.compile(rf"/lookup/v2/topic/persistent/{_TOPIC}")),
    ("topics", re.compile(rf"/admin/v2/namespaces/{_NAMESPACE}/topics")),
    ("topics", re.compile(rf"/admin/v2/(?P<domain>persistent|non-persistent)/{_NAMESPACE}")),  # pulsar-admin's
    ("schema", re.compile(rf"/admin/v2/schemas/{_TOPIC}/schema(?:/(?P<version>[0-9]{{1,18}}))?")),
)
_NOT_PERSISTENT = {"NON_PERSISTENT", "non-persistent"}
_STATUSES = {
    ErrorCode.AUTHENTICATION: 401,
    ErrorCode.AUTHORIZATION: 403,
    ErrorCode.TOPIC_NOT_FOUND: 404,
    ErrorCode.NOT_ALLOWED: 405,
    ErrorCode.METADATA: 412,
    ErrorCode.TOO_MANY_REQUESTS: 429,
    ErrorCode.NOT_READY: 503,
}


class HttpQuestion(NamedTuple):
    """`kind`: `partitions`, `lookup`, `topics` or `schema`. `topic`: its full name, empty with `topics`."""

    kind: str
    namespace: str
    topic: str = ""
    version: int | None = None
    persistent: bool = True


def question_of(target: str) -> HttpQuestion | None:
    """By a request's target; None: nothing is there."""
    path, _, query = target.partition("?")
    for kind, pattern in _QUESTIONS:
        if (found := pattern.fullmatch(path)) is not None:
            said = found.groupdict()
            namespace, name = unquote(said["namespace"]), unquote(said.get("name") or "")
            topic = f"persistent://{namespace}/{name}" if name else ""
            version = said.get("version")
            wanted = said.get("domain") or parse_qs(query).get("mode", ["ALL"])[-1]
            persistent = wanted not in _NOT_PERSISTENT
            return HttpQuestion(kind, namespace, topic, int(version) if version else None, persistent)
    return None


def status_of(code: ErrorCode) -> int:
    """Of an answer that refuses."""
    return _STATUSES.get(code, 500)


def refusal(reason: str) -> dict[str, Any]:
    """Why something is not answered."""
    return {"reason": reason}


def partitions(count: int) -> dict[str, Any]:
    """0: it is not partitioned."""
    return {"partitions": count, "deleted": False}


def looked_up(served: Address, http: Address) -> dict[str, Any]:
    """Where a topic is served, and where more can be asked about it. Old C++ clients want `brokerUrlSsl` to be there,
    though they do not use it."""
    found = {"brokerUrl": served.url, "httpUrl": http.url, "nativeUrl": served.url, "brokerUrlSsl": ""}
    tls = {"brokerUrlTls": served.tls, "httpUrlTls": http.tls}
    return found | {name: url for name, url in tls.items() if url}


def schema(found: TopicSchema) -> dict[str, Any]:
    """One version of it."""
    return {
        "version": found.version,
        "type": found.type,
        "timestamp": found.timestamp,
        "data": found.data.decode(errors="replace"),
        "properties": dict(found.properties),
    }
