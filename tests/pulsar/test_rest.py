"""The admin REST client against a scripted HTTP server."""

import dataclasses
import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from offloader.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    NamespaceNotFoundError,
    ProtocolError,
    TopicNotFoundError,
)
from offloader.model import Gap, GapKind, TopicName
from offloader.pulsar.admin import AdminClient, is_system_topic
from offloader.pulsar.gaps import explain, kind_of
from offloader.pulsar.policies import effective_policies
from offloader.pulsar.rest import MAX_REDIRECTS, RestClient
from offloader.pulsar.settings import PulsarSettings
from tests.pulsar.certificates import certificate

TOPIC = TopicName.parse("public/ns/a topic")
PATH = "/admin/v2/persistent/public/ns/a%20topic"


class FakeAdmin:
    """Answers by path: (status, body, headers); 404 for what it was not told."""

    def __init__(self, tls=None):
        self.answers, self.asked, self.headers = {}, [], []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append((self.command, self.path))
                server.headers.append(dict(self.headers))
                status, body, headers = server.answers.get(self.path, (404, '{"reason":"Topic t not found"}', {}))
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        if tls is not None:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def host(self):
        return f"127.0.0.1:{self.http.server_port}"

    def on(self, path, body="", status=200, **headers):
        self.answers[path] = (status, body, headers)

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def admin():
    admin = FakeAdmin()
    yield admin
    admin.close()


@pytest.fixture
def rest(admin):
    rest = RestClient(PulsarSettings(admin_url=f"http://{admin.host}"))
    yield rest
    rest.close()


@pytest.fixture
def client(admin):
    client = AdminClient(PulsarSettings(admin_url=f"http://{admin.host}"))
    yield client
    client.close()


@pytest.mark.parametrize(
    ("status", "path", "reason", "error"),
    [
        (401, "x", "who", AuthenticationFailedError),
        (401, "x", "Unauthorized to validateTopicOperation", AuthorizationFailedError),
        (401, "x", "This operation requires super-user access", AuthorizationFailedError),
        (403, "x", "no", AuthorizationFailedError),
        (404, "persistent/a/b/c/internalStats", "Topic persistent://a/b/c not found", TopicNotFoundError),
        (404, "persistent/a/b/c/internalStats", "Namespace not found", NamespaceNotFoundError),
        (404, "namespaces/a/b", "Namespace does not exist", NamespaceNotFoundError),
        (404, "persistent/a/b/c", "Tenant a does not exist", NamespaceNotFoundError),
        (404, "persistent/a/b/namespace/x", "Topic persistent://a/b/namespace not found", TopicNotFoundError),
        (412, "x", "not supported", FatalError),
        (429, "x", "slower", BrokerUnavailableError),
        (500, "x", "oops", BrokerUnavailableError),
        (503, "x", "loading", BrokerUnavailableError),
    ],
)
def test_statuses_are_typed_and_carry_the_brokers_reason(admin, rest, status, path, reason, error):
    admin.on(f"/admin/v2/{path}", {"reason": f"{reason}\n stack"}, status)
    with pytest.raises(error, match=f"the broker answered {status}: {reason} stack") as raised:
        rest.get(path)
    assert type(raised.value) is error


def test_an_error_without_a_json_body_is_told_in_one_line(admin, rest):
    admin.on("/admin/v2/x", "oops\n\nagain", 500)
    with pytest.raises(BrokerUnavailableError, match=r"500: oops again$"):
        rest.get("x")
    admin.on("/admin/v2/x", "<html>\n\noops", 500)
    with pytest.raises(BrokerUnavailableError, match=r"500: Internal Server Error$"):
        rest.get("x")


def test_an_empty_answer_is_none_and_a_broken_one_is_refused(admin, rest):
    admin.on("/admin/v2/x", "")
    assert rest.get("x") is None
    admin.on("/admin/v2/x", "not json")
    with pytest.raises(ProtocolError, match="is not JSON"):
        rest.get("x")


def test_redirects_are_followed_with_our_credentials(admin):
    owner = FakeAdmin()
    try:
        admin.on("/admin/v2/x?a=b", "", 307, Location=f"http://{owner.host}/admin/v2/x?a=b&authoritative=true")
        owner.on("/admin/v2/x?a=b&authoritative=true", [1])
        rest = RestClient(PulsarSettings(admin_url=f"http://{admin.host}", auth_plugin="token", auth_params="token:abc"))
        assert rest.get("x", a="b") == [1]
        assert owner.headers[0]["Authorization"] == "Bearer abc"
        rest.close()
    finally:
        owner.close()


def test_redirects_without_end_are_given_up(admin, rest):
    admin.on("/admin/v2/x", "", 307, Location="/admin/v2/x")
    with pytest.raises(BrokerUnavailableError, match="in a row"):
        rest.get("x")
    assert len(admin.asked) == MAX_REDIRECTS


@pytest.mark.parametrize("elsewhere", ["http://a..b:8080/x", "http://[/x"])
def test_a_redirect_to_what_is_no_host_is_no_answer(admin, rest, elsewhere):
    admin.on("/admin/v2/x", status=307, Location=elsewhere)
    with pytest.raises(BrokerUnavailableError, match="did not answer"):
        rest.get("x")


def test_hosts_are_tried_in_turn(admin):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    admin.on("/admin/v2/x", [1])
    rest = RestClient(PulsarSettings(admin_url=f"http://{dead},{admin.host}"))
    assert rest.get("x") == [1]
    rest.close()
    rest = RestClient(PulsarSettings(admin_url=f"http://{dead}"))
    with pytest.raises(BrokerUnavailableError, match=f"{dead} did not answer"):
        rest.get("x")
    rest.close()


def test_https_trusts_what_it_is_told_to(tmp_path):
    context, trusted = certificate(tmp_path)
    admin = FakeAdmin(context)
    try:
        admin.on("/admin/v2/x", [1])
        settings = PulsarSettings(admin_url=f"https://{admin.host}", tls_trust_certs_file=str(trusted))
        rest = RestClient(settings)
        assert rest.get("x") == [1]
        rest.close()
        rest = RestClient(dataclasses.replace(settings, tls_trust_certs_file=""))
        with pytest.raises(BrokerUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            rest.get("x")
        rest.close()
    finally:
        admin.close()
        assert isinstance(context, ssl.SSLContext)


def test_the_version_is_text(admin, client):
    admin.on("/admin/v2/brokers/version", "4.0.7")
    assert client.version() == "4.0.7"


def test_the_clusters_name_without_the_right_to_read_the_configuration(admin, client):
    admin.on("/admin/v2/brokers/configuration/runtime", {"clusterName": "here"})
    assert client.cluster() == "here"
    admin.on("/admin/v2/brokers/configuration/runtime", {"reason": "no"}, 403)
    admin.on("/admin/v2/clusters", ["global", "only"])
    assert client.cluster() == "only"
    admin.on("/admin/v2/clusters", ["a", "b"])
    with pytest.raises(FatalError, match="which of the clusters"):
        client.cluster()


def test_namespaces_of_all_tenants(admin, client):
    admin.on("/admin/v2/tenants", ["b", "a"])
    admin.on("/admin/v2/namespaces/a", ["a/2", "a/1"])
    admin.on("/admin/v2/namespaces/b", ["b/1"])
    assert client.namespaces() == ["a/1", "a/2", "b/1"]


def test_pulsars_own_topics_are_left_out(admin, client):
    names = ["t", "p-partition-0", "__change_events", "__transaction_buffer_snapshot-partition-1", "t-s__transaction_pending_ack"]
    admin.on("/admin/v2/persistent/public/ns", [f"persistent://public/ns/{name}" for name in names])
    assert [topic.name for topic in client.topics("public/ns")] == ["p-partition-0", "t"]
    assert client.topics("pulsar/system") == []
    assert is_system_topic(TopicName.parse("pulsar/system/transaction_coordinator_assign-partition-3"))


def test_a_topic_is_asked_in_the_order_that_tells_a_missing_one(admin, client):
    admin.on(f"{PATH}/internal-info", "<html>Request failed", 500)
    with pytest.raises(TopicNotFoundError):
        client.topic_info(TOPIC)


def test_effective_policies_fall_back_to_the_brokers_configuration(admin, client):
    for name, value in {
        "messageTTL": 60,
        "backlogQuotaMap": {},
        "retention": {"retentionSizeInMB": 0},
        "offloadPolicies": "",
    }.items():
        admin.on(f"{PATH}/{name}?applied=true", value)
    admin.on("/admin/v2/namespaces/public/ns/subscriptionExpirationTime", "")
    admin.on("/admin/v2/brokers/configuration/runtime", {"subscriptionExpirationTimeMinutes": "5"})
    found = effective_policies(client, TOPIC)
    assert found["message_ttl_in_seconds"] == 60
    assert found["offload_policies"] is None
    assert found["subscription_expiration_time_minutes"] == 5
    admin.on("/admin/v2/namespaces/public/ns/subscriptionExpirationTime", 7)
    assert effective_policies(client, TOPIC)["subscription_expiration_time_minutes"] == 7


ABORTED = {"X-Pulsar-txn-aborted": "true", "X-Pulsar-txn-uncommitted": "false"}
MARKER = {"X-Pulsar-marker-type": "22", **ABORTED}


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        (ABORTED, GapKind.ABORTED),
        (MARKER, GapKind.MARKER),
        ({"X-Pulsar-marker-type": "10"}, GapKind.MARKER),
        ({"X-Pulsar-txn-aborted": "false"}, None),
        ({}, None),
        ({**ABORTED, "X-Pulsar-txn-uncommitted": "true"}, None),
    ],
)
def test_kinds_of_entries(headers, kind):
    assert kind_of(headers) == kind


def test_gaps_are_explained_up_to_the_first_entry_that_is_not(admin, rest):
    for number, headers in enumerate([ABORTED, ABORTED, MARKER, ABORTED, {}, MARKER]):
        admin.on(f"{PATH}/ledger/7/entry/{number}", "", **headers)
    first, marker, last = Gap(GapKind.ABORTED, 7, 0, 1), Gap(GapKind.MARKER, 7, 2, 2), Gap(GapKind.ABORTED, 7, 3, 3)
    assert explain(rest, TOPIC, 7, 0, 3, limit=100) == ((first, marker, last), None)
    assert explain(rest, TOPIC, 7, 0, 5, limit=100) == ((first, marker, last), 4)
    assert explain(rest, TOPIC, 7, 0, 3, limit=3) == ((first, marker), 3)
    assert explain(rest, TOPIC, 7, 4, 4, limit=100) == ((), 4)
    assert {method for method, _ in admin.asked} == {"HEAD"}


def test_no_more_entries_are_looked_up_than_allowed(admin, rest):
    for number in range(100):
        admin.on(f"{PATH}/ledger/7/entry/{number}", "", **ABORTED)
    assert explain(rest, TOPIC, 7, 0, 99, limit=20) == ((Gap(GapKind.ABORTED, 7, 0, 19),), 20)
    assert len(admin.asked) == 20


@pytest.mark.parametrize("reason", ["Message id not found", "Message: No such entry", "LastConfirmedEntry is 7:3"])
def test_an_entry_that_is_not_there_is_not_explained(admin, rest, reason):
    admin.on(f"{PATH}/ledger/7/entry/0", {"reason": reason}, 404 if "id" in reason else 500)
    assert explain(rest, TOPIC, 7, 0, 0, limit=9) == ((), 0)


def test_a_broker_in_trouble_explains_nothing(admin, rest):
    admin.on(f"{PATH}/ledger/7/entry/0", {"reason": "oops"}, 500)
    with pytest.raises(BrokerUnavailableError):
        explain(rest, TOPIC, 7, 0, 0, limit=9)
    with pytest.raises(TopicNotFoundError):
        explain(rest, TOPIC, 7, 1, 1, limit=9)
