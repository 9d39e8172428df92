"""The admin REST client against a scripted HTTP server."""

import contextlib
import dataclasses
import gzip
import json
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offloader.pulsar.rest
from offloader.errors import (
    AuthenticationFailedError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    NamespaceNotFoundError,
    NotShownError,
    ProtocolError,
    TopicNotFoundError,
)
from offloader.model import EntryRange, Gap, GapKind, TopicName
from offloader.pulsar.admin import AdminClient, effective_policies
from offloader.pulsar.broker_source import explain, kind_of
from offloader.pulsar.rest import RestClient, refusal
from offloader.pulsar.settings import PulsarSettings
from tests.pulsar.certificates import certificate

MAX_REDIRECTS = 10

TOPIC = TopicName.parse("public/ns/a topic")
PATH = "/admin/v2/persistent/public/ns/a%20topic"


class FakeAdmin:
    """Answers by path: (status, body, headers); 404 for what it was not told."""

    def __init__(self, tls=None):
        self.answers: dict[str, tuple[int, object, dict[str, str]]] = {}
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
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
        self.name = f"http://localhost:{self.http.server_port}"

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
        (403, "x", "no", AuthorizationFailedError),
        (404, "persistent/a/b/c/internalStats", "Topic persistent://a/b/c not found", TopicNotFoundError),
        (404, "persistent/a/b/c/internalStats", "Namespace not found", TopicNotFoundError),
        (404, "namespaces/a/b", "Namespace does not exist", NamespaceNotFoundError),
        (404, "persistent/a/b", "Tenant a does not exist", NamespaceNotFoundError),
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


# What brokers have said of a topic that they do not have, by version. The form is the same in all: an object with a
# `reason`.
NOT_FOUND = [
    "Topic not found",  # 2.8, 2.9.1
    "Topic persistent://a/b/c not found",  # from 2.9.3 and 2.10.1 on
    "Partitioned Topic not found",  # of a partition whose topic is not there
    "Internal topics have not been generated yet",
    "Topic partitions were not yet created",  # 3.0
]


@pytest.mark.parametrize("call", ["internalStats", "internal-info", "stats"])
@pytest.mark.parametrize("reason", NOT_FOUND)
def test_a_topic_that_is_not_there_is_told_by_the_form_of_the_answer_in_every_version(admin, rest, call, reason):
    admin.on(f"/admin/v2/persistent/a/b/c/{call}", {"reason": reason}, 404)
    with pytest.raises(TopicNotFoundError):
        rest.get(f"persistent/a/b/c/{call}")


@pytest.mark.parametrize("path", ["persistent/a/b", "persistent/a/b/c/internalStats", "namespaces/a/b"])
@pytest.mark.parametrize(
    "body",
    [
        "default backend - 404",
        "<html><body>404</body></html>",
        '{"message":"no Route matched"}',
        "[404]",
        "",
        "[" * 10**5,
    ],
)
def test_a_404_that_no_pulsar_gave_says_nothing_of_what_there_is(admin, rest, path, body):
    admin.on(f"/admin/v2/{path}", body, 404)
    with pytest.raises(BrokerUnavailableError, match=r"404.* no answer of a broker"):
        rest.get(path)


@pytest.mark.parametrize(
    ("date", "told"),
    [("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777_000), ("yesterday", None), (None, None)],
)
def test_each_answer_tells_the_brokers_time(date, told):
    headers = {} if date is None else {"Date": date}
    carried = httpx.MockTransport(lambda _: httpx.Response(200, text="4.0.7", headers=headers))
    client = AdminClient(PulsarSettings(admin_url="http://localhost:8080"), transport=carried)
    assert client.time_ms() == told


def test_an_answer_that_is_an_error_tells_no_time():
    headers = {"Date": "Sun, 06 Nov 1994 08:49:37 GMT"}
    carried = httpx.MockTransport(lambda _: httpx.Response(503, headers=headers))
    with pytest.raises(BrokerUnavailableError):
        AdminClient(PulsarSettings(admin_url="http://localhost:8080"), transport=carried).time_ms()


def test_a_401_is_about_what_we_may_where_a_broker_says_it_and_knows_who_we_are(admin):
    rest = RestClient(PulsarSettings(admin_url=f"http://{admin.host}", auth_plugin="token", auth_params="token:abc"))
    admin.on("/admin/v2/x", {"reason": "whatever"}, 401)
    with pytest.raises(AuthorizationFailedError):
        rest.get("x")
    admin.on("/admin/v2/x", "<html>Authentication required", 401)
    with pytest.raises(AuthenticationFailedError):
        rest.get("x")
    rest.close()


@pytest.mark.parametrize("wrong", [None, 7, "text", {}, [7], [None], ["://x"], {"a": 1}])
def test_lists_are_lists_of_names(admin, client, wrong):
    admin.on("/admin/v2/persistent/public/ns?includeSystemTopic=true", json.dumps(wrong))
    with pytest.raises(ProtocolError, match="public/ns"):
        client.topics("public/ns")


@pytest.mark.parametrize("wrong", ["null", "7", "[]", '"text"', "[" * 10**5])
@pytest.mark.parametrize(
    "call", ["namespace_policies", "topic_info", "runtime_configuration", "namespace_properties", "cluster", "identity"]
)
def test_objects_are_objects(admin, client, call, wrong):
    for path in (
        "namespaces/public/ns",
        "namespaces/public/ns/properties",
        "brokers/configuration/runtime",
        "clusters",
    ):
        admin.on(f"/admin/v2/{path}", wrong)
    admin.on("/admin/v2/brokers/internal-configuration", wrong)
    for path in ("internalStats", "internal-info"):
        admin.on(f"{PATH}/{path}", wrong)
    arguments: dict[str, list[str | TopicName]] = {
        "namespace_policies": ["public/ns"],
        "namespace_properties": ["public/ns"],
        "topic_info": [TOPIC],
    }
    if call == "namespace_properties" and wrong == "null":
        assert client.namespace_properties("public/ns") == {}
        return
    with pytest.raises(ProtocolError):
        getattr(client, call)(*arguments.get(call, []))


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
        rest = RestClient(
            PulsarSettings(admin_url=f"http://{admin.host}", auth_plugin="token", auth_params="token:abc")
        )
        assert rest.get("x", a="b") == [1]
        assert owner.headers[0]["Authorization"] == "Bearer abc"
        rest.close()
    finally:
        owner.close()


TOPIC_CALL = "persistent/public/ns/a%20topic/internalStats"
LOOKUP = "/lookup/v2/topic/persistent/public/ns/a%20topic"


@pytest.fixture
def elsewhere():
    """A host that goes by another name, and what it was asked with."""
    other = FakeAdmin()
    other.on(f"/admin/v2/{TOPIC_CALL}", [1])
    yield other
    other.close()


@pytest.fixture
def trusting(admin):
    rest = RestClient(PulsarSettings(admin_url=f"http://{admin.host}", auth_plugin="token", auth_params="token:abc"))
    yield rest
    rest.close()


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"/admin/v2/brokers": ["another.host:8080"], LOOKUP: {"httpUrl": "http://another.host:8080"}},
        {"/admin/v2/brokers": "localhost", LOOKUP: [["localhost"], None, 7]},
        {"/admin/v2/brokers": "<html>localhost</html>", LOOKUP: "[" * 100_000},
    ],
)
def test_the_token_goes_to_no_host_that_the_cluster_does_not_name(admin, elsewhere, trusting, said):
    admin.on(f"/admin/v2/{TOPIC_CALL}", "", 307, Location=f"{elsewhere.name}/admin/v2/{TOPIC_CALL}")
    for path, answer in said.items():
        admin.on(path, answer)
    with pytest.raises(
        BrokerUnavailableError, match=r"not followed: neither pulsar\.adminUrl nor the cluster itself names"
    ):
        trusting.get(TOPIC_CALL)
    assert elsewhere.asked == []


@pytest.mark.parametrize("path", ["/admin/v2/brokers", LOOKUP])
def test_brokers_that_the_cluster_names_get_the_token(admin, elsewhere, trusting, path):
    admin.on(f"/admin/v2/{TOPIC_CALL}", "", 307, Location=f"{elsewhere.name}/admin/v2/{TOPIC_CALL}")
    admin.on(
        path,
        ["other:8080", "localhost:1"] if path != LOOKUP else {"brokerUrl": "pulsar://localhost:6650", "nativeUrl": ""},
    )
    for _ in range(2):
        assert trusting.get(TOPIC_CALL) == [1]
    assert [headers["Authorization"] for headers in elsewhere.headers] == ["Bearer abc"] * 2
    assert [asked for _, asked in admin.asked].count(path) == 1


def test_who_is_asked_who_belongs_to_the_cluster_sends_nobody_further(admin, elsewhere, trusting):
    admin.on(f"/admin/v2/{TOPIC_CALL}", "", 307, Location=f"{elsewhere.name}/admin/v2/{TOPIC_CALL}")
    admin.on("/admin/v2/brokers", "", 302, Location=f"{elsewhere.name}/login")
    with pytest.raises(BrokerUnavailableError, match="not followed"):
        trusting.get(TOPIC_CALL)
    assert elsewhere.asked == []


@given(
    st.sampled_from(["https", "http"]),
    st.sampled_from(["http", "ftp", "file", ""]),
    st.text("ab.:@/?#[]\\ ", max_size=12),
)
def test_nothing_leaves_https_and_nobody_is_taken_for_a_named_host(here, scheme, rest):
    source, named = f"{here}://trusted:1/x", {"trusted"}
    target = f"{scheme}:{rest}"
    with contextlib.suppress(ValueError):
        why = refusal(source, target, named)
        assert why or (httpx.URL(target).host == "trusted" and scheme in (here, "https"))
    with contextlib.suppress(ValueError, httpx.InvalidURL):
        target = f"{here}://trusted{rest}"
        assert refusal(source, target, named) or httpx.URL(target).host == "trusted"
    assert refusal("https://trusted/x", "http://trusted/x", named)
    assert refusal("http://trusted/x", "https://trusted/x", named) == ""


def test_no_more_is_read_than_an_answer_may_have(admin, rest, monkeypatch):
    monkeypatch.setattr(offloader.pulsar.rest, "MAX_ANSWER", 1000)
    bomb = gzip.compress(b"[" + b" " * 100_000 + b"]").decode("latin-1")
    admin.on("/admin/v2/x", "[" + " " * 2000 + "]")
    admin.on("/admin/v2/y", bomb, **{"Content-Encoding": "gzip"})
    for path in ("x", "y"):
        with pytest.raises((ProtocolError, BrokerUnavailableError)):
            rest.get(path)


def test_redirects_without_end_are_given_up(admin, rest):
    admin.on("/admin/v2/x", "", 307, Location="/admin/v2/x")
    with pytest.raises(BrokerUnavailableError, match="in a row"):
        rest.get("x")
    assert len(admin.asked) == MAX_REDIRECTS


@pytest.mark.parametrize("elsewhere", ["http://a..b:8080/x", "http://[/x"])
def test_a_redirect_to_what_is_no_host_is_no_answer(admin, rest, elsewhere):
    admin.on("/admin/v2/x", status=307, Location=elsewhere)
    with pytest.raises(BrokerUnavailableError, match=r"did not answer|not followed"):
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


@pytest.fixture
def two(admin):
    """Another host, and a client that asks it before `admin`."""
    first = FakeAdmin()
    rest = RestClient(PulsarSettings(admin_url=f"http://{first.host},{admin.host}"))
    yield first, rest
    rest.close()
    first.close()


BAD = [
    (502, "<html>bad gateway</html>"),
    (503, {"reason": "loading"}),
    (500, ""),
    (408, ""),
    (429, {"reason": "slower"}),
    (404, "default backend - 404"),
]


@pytest.mark.parametrize(("status", "body"), BAD)
def test_the_next_host_is_asked_where_one_is_not_well_and_the_one_that_answers_is_kept(admin, two, status, body):
    first, rest = two
    first.on(PATH, body, status)
    admin.on(PATH, [1])
    assert rest.get_of_owner(PATH.removeprefix("/admin/v2/")) == ([1], f"http://{admin.host}")
    assert rest.get(PATH.removeprefix("/admin/v2/")) == [1]
    assert len(first.asked) == 1


def test_a_redirect_that_leads_nowhere_is_no_answer_either(admin, two):
    first, rest = two
    first.on("/admin/v2/x", "", 307, Location="/admin/v2/x")
    admin.on("/admin/v2/x", [1])
    assert rest.get("x") == [1]


@pytest.mark.parametrize(("status", "body"), BAD)
@pytest.mark.parametrize("turned", [False, True])
def test_where_no_host_is_well_pulsars_own_words_are_told(admin, two, status, body, turned):
    first, rest = two
    one, another = (admin, first) if turned else (first, admin)
    one.on("/admin/v2/x", "<html>nobody's</html>", 404)
    another.on("/admin/v2/x", {"reason": "the broker's own"}, 500)
    with pytest.raises(BrokerUnavailableError, match="500: the broker's own"):
        rest.get("x")
    another.on("/admin/v2/x", body, status)
    with pytest.raises(BrokerUnavailableError, match=f"answered ({status}|404)"):
        rest.get("x")


@pytest.mark.parametrize("status", [401, 403, 404, 409, 412])
def test_what_a_broker_refuses_no_other_one_is_asked(admin, two, status):
    first, rest = two
    first.on("/admin/v2/x", {"reason": "no"}, status)
    assert rest.request("GET", "x").status_code == status
    assert rest.request("HEAD", "x").status_code == status
    assert not admin.asked


def test_a_host_that_does_not_answer_hides_no_answer_of_another(admin):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    admin.on("/admin/v2/x", {"reason": "loading"}, 503)
    rest = RestClient(PulsarSettings(admin_url=f"http://{admin.host},{dead}"))
    with pytest.raises(BrokerUnavailableError, match="503: loading"):
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
    names = [
        "t",
        "p-partition-0",
        "__change_events",
        "__transaction_buffer_snapshot-partition-1",
        "t-s__transaction_pending_ack",
        "__consumer_offsets",
        "__consumer_offsets-partition-1",
        "__transaction_buffer_snapshot_of_mine",
    ]
    path = "/admin/v2/persistent/public/ns?includeSystemTopic=true"
    admin.on(path, [f"persistent://public/ns/{name}" for name in names])
    assert [topic.name for topic in client.topics("public/ns")] == [
        "__consumer_offsets",
        "__consumer_offsets-partition-1",
        "__transaction_buffer_snapshot_of_mine",
        "p-partition-0",
        "t",
    ]
    assert [topic.name for topic in client.all_topics("public/ns")] == sorted(names)


def test_a_topic_is_asked_in_the_order_that_tells_a_missing_one(admin, client):
    admin.on(f"{PATH}/internal-info", "<html>Request failed", 500)
    with pytest.raises(TopicNotFoundError):
        client.topic_info(TOPIC)


@pytest.mark.parametrize(
    ("says", "status", "shown"), [("true", 200, False), ("false", 200, True), (None, 200, True), (None, 403, True)]
)
def test_where_brokers_load_cursors_lazily_what_they_say_of_a_token_is_not_the_subscriptions(
    admin, client, says, status, shown
):
    configuration = {"reason": "no"} if status == 403 else {} if says is None else {"lazyCursorRecovery": says}
    admin.on("/admin/v2/brokers/configuration/runtime", configuration, status)
    assert client.shows_pin_tokens() is shown


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
    first, marker, last = (
        Gap(7, 0, 2, kind=GapKind.ABORTED),
        Gap(7, 2, 3, kind=GapKind.MARKER),
        Gap(7, 3, 4, kind=GapKind.ABORTED),
    )
    assert explain(rest, TOPIC, EntryRange(7, 0, 4), limit=100) == ((first, marker, last), None)
    assert explain(rest, TOPIC, EntryRange(7, 0, 6), limit=100) == ((first, marker, last), 4)
    assert explain(rest, TOPIC, EntryRange(7, 0, 4), limit=3) == ((first, marker), 3)
    assert explain(rest, TOPIC, EntryRange(7, 4, 5), limit=100) == ((), 4)
    assert {method for method, _ in admin.asked} == {"HEAD"}


def test_no_more_entries_are_looked_up_than_allowed(admin, rest):
    for number in range(100):
        admin.on(f"{PATH}/ledger/7/entry/{number}", "", **ABORTED)
    assert explain(rest, TOPIC, EntryRange(7, 0, 100), limit=20) == ((Gap(7, 0, 20, kind=GapKind.ABORTED),), 20)
    assert len(admin.asked) == 20


def listed(admin, entries, *, offloaded=False):
    """A topic with one closed ledger, 7, and an open one."""
    ledgers = [
        {"ledgerId": 7, "entries": entries, "size": 10, "offloaded": offloaded},
        {"ledgerId": 9, "entries": 0, "size": 0},
    ]
    stats = {"ledgers": ledgers, "lastConfirmedEntry": "9:-1", "state": "LedgerOpened", "currentLedgerEntries": 0}
    admin.on(f"{PATH}/internalStats", {**stats, "currentLedgerSize": 0, "cursors": {}})
    admin.on(f"{PATH}/internal-info", {"creationDate": "2026-11-21T12:12:20.531Z"})


@pytest.mark.parametrize("status", [404, 500])
def test_an_entry_that_is_not_listed_is_not_explained_whatever_is_answered_for_it(admin, rest, status):
    listed(admin, 3)
    for ledger, entry in ((7, 3), (8, 0), (9, 0)):
        admin.on(f"{PATH}/ledger/{ledger}/entry/{entry}", {"reason": "any words"}, status)
        assert explain(rest, TOPIC, EntryRange(ledger, entry, entry + 1), limit=9) == ((), entry)


@pytest.mark.parametrize("offloaded", [False, True])
def test_whether_a_broker_in_trouble_reads_from_bookkeeper_is_told(admin, rest, offloaded):
    listed(admin, 3, offloaded=offloaded)
    admin.on(f"{PATH}/ledger/7/entry/0", {"reason": "oops"}, 500)
    with pytest.raises(BrokerUnavailableError) as told:
        explain(rest, TOPIC, EntryRange(7, 0, 2), limit=100)
    assert isinstance(told.value, NotShownError) is not offloaded


def test_a_broker_in_trouble_explains_nothing_and_what_would_help_is_said(admin, rest):
    """It may be the entry: one that is no message brokers neither deliver nor show."""
    listed(admin, 3)
    admin.on(f"{PATH}/ledger/7/entry/0", {"reason": "oops"}, 500)
    with pytest.raises(
        BrokerUnavailableError, match=r"500: oops; if that lasts, .* with pulsar\.metadataServiceUri it is copied"
    ):
        explain(rest, TOPIC, EntryRange(7, 0, 1), limit=9)
    with pytest.raises(TopicNotFoundError):
        explain(rest, TOPIC, EntryRange(7, 1, 2), limit=9)


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 ", b"O"),
        (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"["),
    ],
    ids=["nothing", "status", "headers", "body"],
)
def test_an_answer_that_trickles_without_end_is_given_up(begins, goes_on):
    def trickle(listener, stopping):
        connection, _ = listener.accept()
        connection.sendall(begins)
        while not stopping.wait(0.02):
            with contextlib.suppress(OSError):
                connection.sendall(goes_on)
        connection.close()

    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener, stopping))
        thread.start()
        rest = RestClient(
            PulsarSettings(admin_url=f"http://127.0.0.1:{listener.getsockname()[1]}", operation_timeout=0.3)
        )
        began = time.monotonic()
        with pytest.raises(BrokerUnavailableError, match=r"did not answer \(ReadTimeout"):
            rest.get("x")
        assert time.monotonic() - began < 20, "as long as a connection may trickle"
        rest.close()
        stopping.set()
        thread.join()


@pytest.mark.parametrize("status", [300, 302, 304])
def test_a_redirect_that_does_not_say_where_to_is_no_answer(status):
    carried = httpx.MockTransport(lambda _: httpx.Response(status))
    with pytest.raises(BrokerUnavailableError, match=f"answered {status} and does not say where"):
        AdminClient(PulsarSettings(admin_url="http://localhost:8080"), transport=carried).namespace_properties(
            "public/ns"
        )


def test_a_partitions_policies_are_those_of_its_topic(admin, client):
    """Pulsar 4.0.7 refuses to be asked for those of a partition: 412."""
    for path in ("retention", "offloadPolicies"):
        admin.on(f"/admin/v2/persistent/a/b/c-partition-1/{path}?applied=true", {"reason": "not of a partition"}, 412)
    admin.on(
        "/admin/v2/persistent/a/b/c/retention?applied=true", {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
    )
    admin.on("/admin/v2/persistent/a/b/c/offloadPolicies?applied=true", {"managedLedgerOffloadDriver": "S3"})
    partition = TopicName.parse("a/b/c-partition-1")
    assert client.retention(partition) == (5, -1)
    assert client.offload_policies(partition) == {"managedLedgerOffloadDriver": "S3"}
