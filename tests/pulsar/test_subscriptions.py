"""Subscriptions over the admin REST: what brokers say, checked, and what a lost or refused call means."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import (
    AuthorizationFailedError,
    FatalError,
    OutcomeUnknownError,
    ProtocolError,
    SubscriptionBusyError,
    TopicNotFoundError,
)
from offloader.model import AcknowledgedRange, PartlyAcknowledged, TopicName
from offloader.ports.subscriptions import SubscriptionLook, SubscriptionUse
from offloader.pulsar import commands
from offloader.pulsar.answers import acknowledged_ranges
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscription_rest import subscription_uses
from offloader.pulsar.subscriptions import BrokerSubscriptions
from offloader.pulsar.topic_rest import subscription_look
from offloader.state.managed_ledger import ListedLedger, OffloadContext
from offloader.state.subscription import CursorState
from offloader.state.topic import NewestLedger

TOPIC = TopicName.parse("public/default/t")
PATH = "/admin/v2/persistent/public/default/t"
INFO = {"creationDate": "2026-11-21T12:12:20.531Z"}
RECORD = {"modificationDate": "2026-11-21T12:12:20.532Z", "version": 3}
CURSOR = {"markDeletePosition": "2:0", "individuallyDeletedMessages": "[(2:4..2:5],(8:-1\u20258:3]]"}
LEDGERS = [{"ledgerId": 2, "entries": 9, "size": 900}, {"ledgerId": 8, "entries": 0, "size": 0}]
INTERNAL = {
    "cursors": {"team%2Fold+job": CURSOR},
    "ledgers": LEDGERS,
    "currentLedgerEntries": 7,
    "currentLedgerSize": 710,
    "lastConfirmedEntry": "8:6",
}
STATS = {
    "subscriptions": {
        "team/old job": {
            "consumers": [],
            "msgBacklog": 7,
            "isDurable": True,
            "isReplicated": True,
            "lastAckedTimestamp": 5,
            "lastConsumedTimestamp": 9,
            "subscriptionProperties": {"owner": "joe"},
        }
    }
}
LOOK = SubscriptionLook(
    1795263140531,
    (2, 0),
    (AcknowledgedRange((2, 4), (2, 5)), AcknowledgedRange((8, -1), (8, 3))),
    0,
    7,
    9,
    replicated=True,
    properties=(("owner", "joe"),),
    lengths=((2, 9), (8, None)),
    sizes={2: (9, 900), 8: (7, 710)},
)


class Broker:
    """Answers by method and path; remembers what was asked."""

    def __init__(self, **answers):
        self.asked = []
        self.answers = {
            ("GET", f"{PATH}/internalStats"): (200, INTERNAL),
            ("GET", f"{PATH}/internal-info"): (200, INFO),
            ("GET", f"{PATH}/stats"): (200, STATS),
        }
        self.changed = answers.get("changed", (204, None))

    def __call__(self, request):
        self.asked.append((request.method, request.url.raw_path.decode(), request.content))
        status, answer = self.answers.get((request.method, request.url.path), self.changed)
        if isinstance(answer, Exception):
            raise answer
        text = answer if isinstance(answer, str) else "" if answer is None else json.dumps(answer)
        return httpx.Response(status, content=text.encode())


def client(broker):
    return BrokerSubscriptions(PulsarSettings(), transport=httpx.MockTransport(broker))


def test_a_look_is_of_three_answers():
    assert client(Broker()).look(TOPIC, "team/old job") == LOOK
    assert client(Broker()).look(TOPIC, "other") is None


def test_a_report_of_a_loaded_topic_counts_its_open_ledger():
    info = {**INFO, **RECORD, "ledgers": [{"ledgerId": 2, "entries": 9, "size": 900, "timestamp": 70}, {"ledgerId": 8}]}
    broker = Broker()
    broker.answers["GET", f"{PATH}/internal-info"] = (200, info)
    broker.answers["GET", f"{PATH}/internalStats"] = (200, {**INTERNAL, "state": "LedgerOpened"})
    report = client(broker).report(TOPIC, loaded=True)
    assert report.ledgers == (ListedLedger(2, 9, 900, 70), ListedLedger(8))
    at = report.list.modified_ms
    assert report.newest == NewestLedger(False, 7, 710, at, at)
    cursor = report.cursors["team/old job"]
    assert (cursor.mark_delete, cursor.ranges, cursor.last_active_ms, cursor.cursor_ledger) == (
        (2, 0),
        LOOK.ranges,
        9,
        None,
    )
    assert cursor.subscription_properties == (("owner", "joe"),)


def test_a_report_of_an_unloaded_topic_is_its_record_and_loads_nothing():
    cursors = {
        "closed": {
            "cursorsLedgerId": -1,
            "markDelete": {"ledgerId": 2, "entryId": 3},
            "individualDeletedMessages": [{"from": {"ledgerId": 2, "entryId": 4}, "to": {"ledgerId": 2, "entryId": 5}}],
            "properties": {"n": 1},
        },
        "in%2Fuse": {"cursorsLedgerId": 77},
    }
    ledgers = [
        {"ledgerId": 2, "entries": 9, "size": 900, "timestamp": 70, "isOffloaded": True},
        {"ledgerId": 8, "entries": 0, "size": 0, "timestamp": 0},
    ]
    broker = Broker()
    broker.answers["GET", f"{PATH}/internal-info"] = (200, {**INFO, **RECORD, "ledgers": ledgers, "cursors": cursors})
    report = client(broker).report(TOPIC, loaded=False)
    assert report.ledgers == (ListedLedger(2, 9, 900, 70, OffloadContext(complete=True)), ListedLedger(8))
    assert report.newest is None
    listed = report.list
    assert (listed.version, listed.created_ms, listed.modified_ms) == (3, 1795263140531, 1795263140532)
    assert report.cursors == {
        "closed": CursorState((2, 3), (AcknowledgedRange((2, 4), (2, 5)),), properties=(("n", 1),), last_active_ms=0),
        "in/use": CursorState(cursor_ledger=77, last_active_ms=0),
    }
    assert {path for _, path, _ in broker.asked} == {f"{PATH}/internal-info"}
    broker.answers["GET", f"{PATH}/internal-info"] = (200, {**INFO, "ledgers": 3})
    with pytest.raises(ProtocolError, match="in a way that we do not know"):
        client(broker).report(TOPIC, loaded=False)


def test_one_that_is_not_durable_is_none():
    stats = json.loads(json.dumps(STATS))
    stats["subscriptions"]["team/old job"]["isDurable"] = False
    assert subscription_look(INFO, INTERNAL, stats, "team/old job") is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[]", ()),
        ("", ()),
        ("[(1:-1..1:0], (1:0..1:4]]", (AcknowledgedRange((1, -1), (1, 4)),)),
        ("[(1:5..3:2]]", (AcknowledgedRange((1, 5), (3, 2)),)),
    ],
)
def test_ranges_are_read(text, wanted):
    assert acknowledged_ranges(text) == wanted


@pytest.mark.parametrize("text", ["[(1:5..1:7)]", "[[1:5..1:7]]", "x", "[(1:5..1:7],(1:", "[(1..2]]"])
def test_ranges_in_another_form_are_not_guessed(text):
    with pytest.raises(ValueError, match="no list of ranges"):
        acknowledged_ranges(text)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["2:0", "[(2:4..2:5]]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cursors", "subscriptions", "s", "consumers", "msgBacklog", *CURSOR, *INFO, "persistent"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(ANY_JSON, ANY_JSON, ANY_JSON)
def test_answers_of_another_type_are_damage_at_worst(info, internal, stats):
    for ask in (
        lambda: subscription_look(info, internal, stats, "s"),
        lambda: list(subscription_uses(stats)),
    ):
        try:
            ask()
        except ProtocolError:
            continue


def test_a_deletion_is_never_by_force():
    broker = Broker()
    client(broker).delete(TOPIC, "team/old job")
    assert broker.asked == [("DELETE", f"{PATH}/subscription/team%2Fold%20job?force=false", b"")]


REASON = {"reason": "no"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((412, REASON), SubscriptionBusyError),
        ((404, REASON), TopicNotFoundError),
        ((404, {"error": "an ingress"}), OutcomeUnknownError),
        ((403, REASON), AuthorizationFailedError),
        ((409, REASON), FatalError),
        ((500, REASON), OutcomeUnknownError),
        ((503, REASON), OutcomeUnknownError),
        ((0, httpx.ReadTimeout("late")), OutcomeUnknownError),
    ],
)
def test_what_a_deletion_that_did_not_succeed_means(answer, error):
    with pytest.raises(error):
        client(Broker(changed=answer)).delete(TOPIC, "s")


def test_it_is_made_before_the_first_entry_and_moved_to_where_it_stood():
    broker = Broker()
    assert client(broker).create(TOPIC, "s", {"owner": "joe"})
    client(broker).move(TOPIC, "s", (7, 3))
    client(broker).move(TOPIC, "s", (-1, -1))
    assert [(method, path, json.loads(body)) for method, path, body in broker.asked] == [
        (
            "PUT",
            f"{PATH}/subscription/s",
            {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": {"owner": "joe"}},
        ),
        (
            "POST",
            f"{PATH}/subscription/s/resetcursor",
            {"ledgerId": 7, "entryId": 3, "partitionIndex": -1, "excluded": True},
        ),
        (
            "POST",
            f"{PATH}/subscription/s/resetcursor",
            {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "excluded": False},
        ),
    ]
    assert not client(Broker(changed=(409, REASON))).create(TOPIC, "s", {})


def test_its_properties_are_replaced():
    broker = Broker()
    client(broker).describe(TOPIC, "a/b", {"owner": "joe"})
    assert broker.asked == [("PUT", f"{PATH}/subscription/a%2Fb/properties", b'{"owner":"joe"}')]
    with pytest.raises(OutcomeUnknownError, match="somebody else"):
        client(Broker(changed=(409, REASON))).describe(TOPIC, "s", {})


def test_its_position_is_copied_to_other_clusters():
    broker = Broker()
    client(broker).replicate(TOPIC, "a/b")
    assert broker.asked == [("POST", f"{PATH}/subscription/a%2Fb/replicatedSubscriptionStatus", b"true")]


def test_uses_are_of_loaded_topics():
    topics = {str(TOPIC): {"subscriptions": {"s": {"consumers": [dict[str, object]()]}}}}
    said = {"public/default": {"0x0_0x8": {"persistent": topics}}}
    assert dict(subscription_uses(said)) == {TOPIC: {"s": SubscriptionUse(1, 0)}}
    assert dict(subscription_uses({"public/default": {"0x0_0x8": {}}})) == {}
    assert dict(subscription_uses(None)) == {}


def test_a_part_of_a_batch_on_the_wire():
    found = commands.batch_id(PartlyAcknowledged(3, 7, (-1, 0x3E0)))
    assert (found.ledger_id, found.entry_id, list(found.ack_set), found.batch_size) == (3, 7, [-1, 0x3E0], 74)
    assert commands.batch_id(PartlyAcknowledged(3, 7, ())).batch_size == 0


@pytest.mark.parametrize("absent", ["isReplicated", "subscriptionProperties"])
def test_a_broker_that_does_not_report_a_trait_leaves_it_unknown(absent):
    said = {name: value for name, value in STATS["subscriptions"]["team/old job"].items() if name != absent}
    look = subscription_look(INFO, INTERNAL, {"subscriptions": {"team/old job": said}}, "team/old job")
    assert not look.traits_known
    assert LOOK.traits_known


@pytest.mark.parametrize(("version", "keeps"), [("2.10.0", False), ("4.0.7", True)])
def test_whether_properties_are_kept_is_by_the_version_of_the_topics_broker(version, keeps):
    broker = Broker()
    broker.answers["GET", "/admin/v2/brokers/version"] = (200, version)
    assert client(broker).keeps_properties(TOPIC) is keeps
