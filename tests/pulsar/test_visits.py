"""What brokers are asked so that unloaded topics are visited, and what is made of their answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from offloader.errors import (
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    OffloadError,
    ProtocolError,
    TopicNotFoundError,
)
from offloader.model import TopicName
from offloader.ports.admin import TopicUse
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings

TOPIC = TopicName.parse("acme/orders/a b")
PATH = "/admin/v2/persistent/acme/orders/a%20b"
BROKERS = ["one:8080", "two:8080"]


class Cluster:
    """Answers by host and path; 404 in Pulsar's form for the rest."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answers: dict[str, tuple[int, Any]] = {
            "/admin/v2/brokers/configuration/runtime": (200, {"clusterName": "west"}),
            "/admin/v2/brokers/west": (200, BROKERS),
        }
        self.redirect: Callable[[httpx.Request], str | None] = lambda _: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        self.asked.append((request.method, f"{request.url.netloc.decode()}{path}"))
        target = self.redirect(request)
        if target is not None:
            return httpx.Response(307, headers={"Location": f"{target}{path}"})
        host = f"{request.url.netloc.decode()}{path}"
        status, answer = self.answers.get(host) or self.answers.get(path) or (404, {"reason": "Topic not found"})
        return httpx.Response(status, text=answer if isinstance(answer, str) else json.dumps(answer))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def visits(cluster: Cluster) -> AdminClient:
    settings = PulsarSettings(admin_url="http://one:8080,two:8080")
    return AdminClient(settings, transport=httpx.MockTransport(cluster))


def statistics(*topics: str) -> dict[str, Any]:
    """As 4.0.7 gives them."""
    bundle = {"persistent": {topic: {"publishers": []} for topic in topics}, "non-persistent": {"x": {}}}
    return {"acme/orders": {"0x00000000_0x80000000": bundle, "0x80000000_0xffffffff": {}}}


def test_every_broker_says_what_it_has_loaded(cluster: Cluster, visits: AdminClient) -> None:
    cluster.answers["one:8080/admin/v2/broker-stats/topics"] = (200, statistics("persistent://acme/orders/a"))
    cluster.answers["two:8080/admin/v2/broker-stats/topics"] = (200, statistics("persistent://acme/orders/b"))
    assert visits.loaded_topics() == {
        "persistent://acme/orders/a": "one:8080",
        "persistent://acme/orders/b": "two:8080",
    }


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [(503, "", BrokerUnavailableError), (403, {"reason": "no"}, AuthorizationFailedError), (200, [], ProtocolError)],
)
def test_one_broker_s_silence_is_no_absence(
    cluster: Cluster, visits: AdminClient, status: int, answer: Any, error: type[OffloadError]
) -> None:
    cluster.answers["one:8080/admin/v2/broker-stats/topics"] = (200, statistics())
    cluster.answers["two:8080/admin/v2/broker-stats/topics"] = (status, answer)
    with pytest.raises(error):
        visits.loaded_topics()


def test_a_broker_without_topics_may_say_nothing(cluster: Cluster, visits: AdminClient) -> None:
    cluster.answers["/admin/v2/broker-stats/topics"] = (200, "")
    assert visits.loaded_topics() == {}


@pytest.mark.parametrize("answer", [[], {}, "x", [1]])
def test_no_broker_is_no_answer(cluster: Cluster, visits: AdminClient, answer: Any) -> None:
    cluster.answers["/admin/v2/brokers/west"] = (200, json.dumps(answer))
    with pytest.raises(ProtocolError):
        visits.loaded_topics()


def test_topics_and_names_that_partitions_share(cluster: Cluster, visits: AdminClient) -> None:
    listed = ["persistent://acme/orders/p-partition-0", "persistent://acme/orders/__change_events"]
    cluster.answers["/admin/v2/persistent/acme/orders?includeSystemTopic=true"] = (200, listed)
    cluster.answers["/admin/v2/persistent/acme/orders/partitioned"] = (200, ["persistent://acme/orders/p"])
    known = visits.known_topics("acme/orders")
    assert sorted(map(str, known.topics)) == sorted(listed)
    assert known.partitioned == {"persistent://acme/orders/p"}


def test_trim_and_unload_go_to_the_owner(cluster: Cluster, visits: AdminClient) -> None:
    cluster.redirect = lambda request: "http://two:8080" if request.url.host == "one" else None
    cluster.answers |= {f"two:8080{PATH}/{call}": (204, "") for call in ("trim", "unload")}
    visits.trim(TOPIC)
    visits.unload(TOPIC)
    assert cluster.asked == [
        ("POST", f"one:8080{PATH}/trim"),
        ("POST", f"two:8080{PATH}/trim"),
        ("PUT", f"one:8080{PATH}/unload"),
        ("PUT", f"two:8080{PATH}/unload"),
    ]


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (404, {"reason": "Topic not found"}, TopicNotFoundError),
        (404, "<html>nginx</html>", BrokerUnavailableError),  # an ingress, or a broker that knows no such call
        (405, "", FatalError),
        (409, {"reason": "being deleted"}, FatalError),
        (412, {"reason": "no bundle"}, FatalError),
        (403, {"reason": "TRIM_TOPIC"}, AuthorizationFailedError),
        (503, {"reason": "the bundle is being unloaded"}, BrokerUnavailableError),
        (500, {"reason": "recovery failed"}, BrokerUnavailableError),
    ],
)
def test_what_a_refused_trim_is_taken_for(
    cluster: Cluster, visits: AdminClient, status: int, answer: Any, error: type[OffloadError]
) -> None:
    cluster.answers[f"{PATH}/trim"] = (status, answer)
    with pytest.raises(OffloadError) as raised:
        visits.trim(TOPIC)
    assert type(raised.value) is error


def test_who_uses_a_topic(cluster: Cluster, visits: AdminClient) -> None:
    stats: dict[str, Any] = {"publishers": [], "waitingPublishers": 0, "subscriptions": {"s": {"consumers": []}}}
    cluster.answers[f"{PATH}/stats"] = (200, stats)
    assert visits.use(TOPIC) == TopicUse(0, 0)
    stats |= {"publishers": [{}], "waitingPublishers": 2, "subscriptions": {"s": {"consumers": [{}, {}]}}}
    stats["replication"] = {"west": {"replicationBacklog": 0}, "east": {"replicationBacklog": 7}}
    assert visits.use(TOPIC) == TopicUse(5, 1)


@pytest.mark.parametrize("stats", [[], {"publishers": 3}, {"publishers": [], "subscriptions": {"s": {}}}, None])
def test_statistics_that_say_nothing_are_not_nobody(cluster: Cluster, visits: AdminClient, stats: Any) -> None:
    cluster.answers[f"{PATH}/stats"] = (200, stats)
    with pytest.raises(ProtocolError):
        visits.use(TOPIC)


def test_retention_at_three_levels(cluster: Cluster, visits: AdminClient) -> None:
    policy = {"retentionTimeInMinutes": 3, "retentionSizeInMB": -1}
    cluster.answers[f"{PATH}/retention?applied=true"] = (200, policy)
    cluster.answers["/admin/v2/namespaces/acme/orders"] = (200, {"retention_policies": policy})
    assert visits.applied_retention(TOPIC) == visits.namespace_policies("acme/orders")["retention_policies"] == policy
    assert visits.runtime_configuration()["clusterName"] == "west"
