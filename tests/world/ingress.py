"""The admin REST over HTTP: an ingress that may do as it likes, and the brokers behind it, which answer as Pulsar 4.0.7
does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import cast
from urllib.parse import quote_plus, unquote

import httpx

from offloader.model import GapKind, TopicName
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from tests.fakes.cluster_state import MemoryTopic
from tests.world.brokers import Broker, Brokers
from tests.world.scheduler import SECOND

INGRESS = "admin.example"
PORT = 8080

SETTINGS = PulsarSettings(admin_url=f"http://{INGRESS}:{PORT}")


@dataclass(frozen=True)
class Asked:
    """A request, as far as anybody here looks at it."""

    url: httpx.URL


@dataclass(frozen=True)
class Said:
    """A broker's answer, as far as the product looks at it."""

    request: Asked
    status_code: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def iter_bytes(self) -> Iterator[bytes]:
        yield self.content


Answer = Callable[[Asked], "httpx.Response | Said"]
"""What an ingress makes of a request by itself."""


def default_backend(request: Asked) -> httpx.Response:
    """An ingress that does not know where to send it."""
    return httpx.Response(404, text="default backend - 404")


def bad_gateway(request: Asked) -> httpx.Response:
    """Nobody behind the ingress answers."""
    return httpx.Response(502, html="<html><body><h1>502 Bad Gateway</h1></body></html>")


def sign_in(request: Asked) -> httpx.Response:
    """A page for people, with a status that says that all is well."""
    return httpx.Response(200, html="<html><body>Please sign in</body></html>")


def null(request: Asked) -> httpx.Response:
    """JSON of a type that nobody expects."""
    return httpx.Response(200, text="null", headers={"Content-Type": "application/json"})


def a_list(request: Asked) -> httpx.Response:
    """Another type that nobody expects."""
    return httpx.Response(200, json=[[], 0])


def sends_round(request: Asked) -> httpx.Response:
    """A redirect to itself."""
    return httpx.Response(307, headers={"Location": str(request.url)})


LIES: dict[str, Answer] = {
    "default backend": default_backend,
    "bad gateway": bad_gateway,
    "sign in": sign_in,
    "null": null,
    "a list": a_list,
    "sends round": sends_round,
}


class Ingress:
    """What stands before the brokers' admin ports. `lie` answers instead of them; `elsewhere` is another cluster that
    it leads to."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.lie: Answer | None = None
        self.lies_to: Callable[[str], bool] = lambda path: True
        self.hangs = False
        self.elsewhere: Brokers | None = None
        self.asked = 0

    def reached_by(self, client: RestClient) -> RestClient:
        """The product's client on its way to it: all of it but httpx, which takes longer than everything that is
        asked."""
        client._client = cast("httpx.Client", _Http(self))
        return client


class _Http:
    """What the product uses of `httpx.Client`."""

    def __init__(self, ingress: Ingress) -> None:
        self._ingress = ingress

    def stream(
        self, method: str, url: httpx.URL, *, params: Mapping[str, str] | None, headers: object, json: object
    ) -> nullcontext[Said]:
        assert method in ("GET", "HEAD"), "the application asks, and changes nothing"
        assert json is None
        whole = _with(url, tuple(params.items())) if params else url
        return nullcontext(self._answer(Asked(whole)))

    def close(self) -> None:
        pass

    def _answer(self, request: Asked) -> Said:
        ingress, brokers = self._ingress, self._ingress.brokers
        ingress.asked += 1
        brokers.travel(brokers.all[0])
        path = request.url.path
        if request.url.host == INGRESS:
            if ingress.hangs:
                self._time_out()
            if ingress.lie is not None and ingress.lies_to(path):
                brokers.scheduler.log(f"ingress lies {path}")
                return _said(request, ingress.lie(request))
            behind = ingress.elsewhere or brokers
            up = [b for b in behind.all if b.up]
            if not up:
                return _said(request, bad_gateway(request))
            broker = brokers.scheduler.rng.choice(up)
        else:
            behind = brokers
            broker = next(b for b in brokers.all if b.host == request.url.host)
            if not broker.up:
                raise httpx.ConnectError("connection refused")
        if broker.hangs:
            self._time_out()
        return respond(behind, broker, request)

    def _time_out(self) -> None:
        self._ingress.brokers.scheduler.sleep(int(SETTINGS.operation_timeout * SECOND))
        raise httpx.ReadTimeout("timed out")


def _said(request: Asked, answer: httpx.Response | Said) -> Said:
    return (
        answer if isinstance(answer, Said) else Said(request, answer.status_code, answer.content, dict(answer.headers))
    )


@lru_cache(maxsize=1_000)
def _with(url: httpx.URL, query: tuple[tuple[str, str], ...]) -> httpx.URL:
    return url.copy_merge_params(dict(query))


@lru_cache(maxsize=1_000)
def _parts(path: bytes) -> list[str]:
    """The pieces of the path below /admin/v2/ or /lookup/v2/."""
    return [unquote(p) for p in path.decode().partition("?")[0].split("/")[3:]]


def respond(brokers: Brokers, broker: Broker, request: Asked) -> Said:
    """A broker's answer."""
    status, body = _Page(brokers, broker, request).of(_parts(request.url.raw_path))
    if isinstance(body, str) and status == 307:
        return Said(request, 307, headers={"location": body})
    if isinstance(body, Headers):
        return Said(request, status, headers=body)
    if isinstance(body, str):
        return Said(request, status, body.encode(), {"content-type": "text/plain; charset=utf-8"})
    return Said(request, status, json.dumps(body).encode(), {"content-type": "application/json"})


class Headers(dict[str, str]):
    """An answer without a body that says something."""


def _refusal(status: int, reason: str) -> tuple[int, object]:
    return status, {"reason": reason}


class _Page:
    def __init__(self, brokers: Brokers, broker: Broker, request: Asked) -> None:
        self._brokers = brokers
        self._cluster = brokers.cluster
        self._broker = broker
        self._request = request

    def of(self, parts: list[str]) -> tuple[int, object]:
        """By the pieces of the path below /admin/v2/ or /lookup/v2/."""
        match parts:
            case ["brokers", "version"]:
                return 200, self._broker.version
            case ["brokers", "configuration", "runtime"]:
                return 200, {"clusterName": self._cluster.name, **self._cluster.configuration}
            case ["brokers", "internal-configuration"]:
                return 200, {"metadataStoreUrl": f"zk:{self._cluster.name}-zk:2181", "ledgersRootPath": "/ledgers"}
            case ["brokers"] | ["brokers", _]:
                return 200, [f"{b.host}:{PORT}" for b in self._brokers.all if b.up]
            case ["topic", "persistent", tenant, namespace, name]:  # /lookup/v2
                owner = self._brokers.owner(TopicName(tenant, namespace, name))
                return 200, {"brokerUrl": f"pulsar://{owner.host}:6650", "httpUrl": f"http://{owner.host}:{PORT}"}
            case ["clusters"]:
                return 200, [self._cluster.name, "global"]
        return self._of_namespaces(parts)

    def _of_namespaces(self, parts: list[str]) -> tuple[int, object]:
        match parts:
            case ["tenants"]:
                return 200, sorted({n.partition("/")[0] for n in self._cluster.state.namespaces})
            case ["tenants", tenant]:
                known = any(n.startswith(f"{tenant}/") for n in self._cluster.state.namespaces)
                return (
                    (200, {"allowedClusters": [self._cluster.name]})
                    if known
                    else _refusal(404, "Tenant does not exist")
                )
            case ["namespaces", tenant]:
                found = sorted(n for n in self._cluster.state.namespaces if n.startswith(f"{tenant}/"))
                return (200, found) if found else _refusal(404, "Tenant does not exist")
            case ["namespaces" | "persistent", tenant, namespace, *_] if (
                f"{tenant}/{namespace}" not in self._cluster.state.namespaces
            ):
                return _refusal(404, "Namespace does not exist")
            case ["namespaces", tenant, namespace]:
                return 200, dict(self._cluster.namespace(f"{tenant}/{namespace}").policies)
            case ["namespaces", tenant, namespace, "properties"]:
                return 200, dict(self._cluster.namespace(f"{tenant}/{namespace}").properties)
            case ["persistent", tenant, namespace]:
                return 200, sorted(str(t) for t in self._cluster.state.topics if t.namespace == f"{tenant}/{namespace}")
            case ["persistent", _, _, "partitioned"]:
                return 200, []
            case ["persistent", tenant, namespace, name, *rest]:
                return self._topic(TopicName(tenant, namespace, name), rest)
        return _refusal(404, "HTTP 404 Not Found")

    def _topic(self, name: TopicName, rest: list[str]) -> tuple[int, object]:
        found = self._cluster.state.topics.get(name)
        if found is None:
            return _refusal(404, f"Topic {name} not found")
        if rest == ["internal-info"]:
            return 200, self._info(found)
        owner = self._brokers.owner(name)
        if owner is not self._broker:
            return 307, f"http://{owner.host}:{PORT}{self._request.url.raw_path.decode()}"
        match rest:
            case ["stats"]:
                shown = {n: self._brokers.shown(owner, found, c) for n, c in found.cursors.items()}
                return 200, {"subscriptions": {n: {"subscriptionProperties": each} for n, each in shown.items()}}
            case ["internalStats"]:
                return 200, self._stats(found)
            case ["ledger", ledger, "entry", entry]:
                return self._entry(found, int(ledger), int(entry))
        return _refusal(404, "HTTP 404 Not Found")

    def _info(self, topic: MemoryTopic) -> dict[str, object]:
        """Dates are formatted where the answering JVM thinks that it is."""
        return {
            "version": len(topic.ledgers) + topic.removed,
            "creationDate": self.date(topic),
            "modificationDate": self.date(topic),
            "ledgers": self._ledgers(topic),
        }

    def date(self, topic: MemoryTopic) -> str:
        """As `DateTimeFormatter.ISO_OFFSET_DATE_TIME` has it."""
        local = datetime.fromtimestamp(topic.created / 1000, timezone(timedelta(minutes=self._broker.zone)))
        return local.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _ledgers(self, topic: MemoryTopic) -> list[dict[str, object]]:
        return [
            {
                "ledgerId": x.id,
                "entries": len(x.entries) if x.closed else 0,
                "size": sum(len(e.data) for e in x.entries) if x.closed else 0,
                "offloaded": x.offloaded,
                "underReplicated": False,
            }
            for x in topic.ledgers
        ]

    def _stats(self, topic: MemoryTopic) -> dict[str, object]:
        last = topic.ledgers[-1]
        confirmed = topic.last_written()
        return {
            "entriesAddedCounter": 0,
            "currentLedgerEntries": len(last.entries),
            "currentLedgerSize": sum(len(e.data) for e in last.entries),
            "lastConfirmedEntry": f"{last.id}:-1" if confirmed == (-1, -1) else f"{confirmed[0]}:{confirmed[1]}",
            "state": "Terminated" if topic.terminated else "LedgerOpened",
            "ledgers": self._ledgers(topic),
            "cursors": {
                quote_plus(name): {"markDeletePosition": f"{c.mark[0]}:{c.mark[1]}", "properties": {}}
                for name, c in topic.cursors.items()
            },
        }

    def _entry(self, topic: MemoryTopic, ledger: int, entry: int) -> tuple[int, object]:
        entries = next((x.entries for x in topic.ledgers if x.id == ledger), None)
        if entries is None:
            return _refusal(404, "Message id not found")
        if entry >= len(entries):
            return _refusal(500, "No such entry: past the LastConfirmedEntry")
        found = entries[entry]
        said = Headers()
        if found.pending:
            said["X-Pulsar-txn-uncommitted"] = "true"
        if found.hidden is GapKind.MARKER:
            said["X-Pulsar-marker-type"] = "21"
        if found.hidden is GapKind.ABORTED:
            said["X-Pulsar-txn-aborted"] = "true"
        return 200, said
