"""A topic's cursors and schemas over the admin REST: what brokers say, checked."""

from __future__ import annotations

import json

import httpx
import pytest

from offloader.errors import ProtocolError, TopicNotFoundError
from offloader.model import AcknowledgedRange, TopicName
from offloader.ports.admin import SubscriptionTraits, TopicCursors, TopicSchema
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings
from offloader.state.subscription import CursorState

TOPIC = TopicName.parse("public/default/t-partition-3")
CURSOR = {
    "markDeletePosition": "2:0",
    "individuallyDeletedMessages": "[(2:4..2:5],(8:-1\u20258:3]]",
    "properties": {"pulsar.replicated.subscription": 1},
}
INTERNAL = {
    "ledgers": [{"ledgerId": 2, "entries": 10}, {"ledgerId": 8, "entries": 0}],
    "cursors": {"team%2Fold+job": CURSOR},
}
STATS = {
    "subscriptions": {
        "team/old job": {
            "isDurable": True,
            "isReplicated": True,
            "subscriptionProperties": {"owner": "joe"},
        },
        "reader": {"isDurable": False},
    }
}
SCHEMA = {"version": 0, "type": "AVRO", "timestamp": 7, "data": '{"é":1}', "properties": {"a": "b"}}
NEWER = {"version": 1, "type": "JSON", "timestamp": 8, "data": "", "properties": {}}
NONE = httpx.Response(404, json={"reason": "Schema not found"})


def states(**answers):
    """A broker that answers each call, by the end of its path."""

    def broker(request):
        answer = answers[request.url.path.rpartition("/")[2]]
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, text=json.dumps(answer))

    return AdminClient(PulsarSettings(), transport=httpx.MockTransport(broker))


def test_cursors_are_told_with_the_ledgers_of_the_same_moment():
    ranges = (AcknowledgedRange((2, 4), (2, 5)), AcknowledgedRange((8, -1), (8, 3)))
    look = CursorState((2, 0), ranges, properties=(("pulsar.replicated.subscription", 1),))
    assert states(internalStats=INTERNAL).cursors(TOPIC) == TopicCursors(((2, 10), (8, None)), {"team/old job": look})


def test_only_durable_subscriptions_are_told():
    assert states(stats=STATS).subscription_traits(TOPIC) == {
        "team/old job": SubscriptionTraits(True, (("owner", "joe"),))
    }


def test_schemas_are_told_with_all_their_versions():
    broker = states(schema=NEWER, schemas={"getSchemaResponses": [NEWER, SCHEMA]})
    first = TopicSchema(0, "AVRO", '{"é":1}'.encode(), 7, (("a", "b"),))
    assert broker.schema_version(TOPIC) == 1
    assert broker.schemas(TOPIC) == (first, TopicSchema(1, "JSON", b"", 8, ()))


def test_a_topic_without_a_schema_has_none():
    assert states(schema=NONE).schema_version(TOPIC) is None


def test_a_partition_knows_how_many_there_are():
    assert states(partitions={"partitions": 4}).partitions(TOPIC) == 4
    assert states(partitions={"partitions": 0}).partitions(TOPIC) is None
    assert states().partitions(TopicName.parse("public/default/t")) is None


def test_a_topic_that_is_gone_is_said_to_be():
    gone = httpx.Response(404, json={"reason": "Topic not found"})
    with pytest.raises(TopicNotFoundError):
        states(internalStats=gone).cursors(TOPIC)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {"ledgers": [], "cursors": []},
        {"ledgers": [{"ledgerId": "2", "entries": 1}], "cursors": {}},
        {**INTERNAL, "cursors": {"a": {**CURSOR, "markDeletePosition": 7}}},
        {**INTERNAL, "cursors": {"a": {**CURSOR, "markDeletePosition": "2"}}},
        {**INTERNAL, "cursors": {"a": {**CURSOR, "individuallyDeletedMessages": None}}},
        {**INTERNAL, "cursors": {"a": {**CURSOR, "individuallyDeletedMessages": "[(2:4…2:5]]"}}},
        {**INTERNAL, "cursors": {"a": {**CURSOR, "properties": {"x": "1"}}}},
    ],
)
def test_cursors_in_another_form_are_refused(answer):
    with pytest.raises(ProtocolError):
        states(internalStats=answer).cursors(TOPIC)


@pytest.mark.parametrize("answer", [None, 7, {"subscriptions": 1}, {"subscriptions": {"a": {"isDurable": "yes"}}}])
def test_subscriptions_in_another_form_are_refused(answer):
    with pytest.raises(ProtocolError):
        states(stats=answer).subscription_traits(TOPIC)


@pytest.mark.parametrize("answer", [None, {}, {"version": -1}, {"version": "1"}])
def test_a_schema_in_another_form_is_refused(answer):
    with pytest.raises(ProtocolError):
        states(schema=answer).schema_version(TOPIC)
    with pytest.raises(ProtocolError):
        states(schemas={"getSchemaResponses": [answer]}).schemas(TOPIC)
