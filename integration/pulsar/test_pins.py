"""Durable pins on a real broker: what they keep, how they move, what breaks them."""

import pytest

from integration.pulsar.waiting import until
from offloader.errors import SubscriptionBusyError, TopicNotFoundError
from offloader.model import Position, TopicName
from offloader.pulsar.pin import BrokerPins

pytestmark = pytest.mark.pulsar


def unload(pulsar, topic, transactions):
    pulsar.admin("PUT", f"{topic.rest_path}/unload")
    transactions.forget(str(topic))


def end(pins, topic):
    found = pins.ends([topic])[topic]
    if isinstance(found, Exception):
        raise found
    return found


def ledgers(admin, topic):
    return [span.ledger for span in admin.topic_info(topic).ledgers.spans]


def test_a_new_pin_stands_before_the_first_entry_and_sees_the_end_move(topic, pins, admin, transactions):
    (first,) = ledgers(admin, topic)
    opened = pins.open(topic)
    assert (opened.last, opened.mark_delete) == (None, (first, -1))
    last = [transactions.send(str(topic), b"x") for _ in range(3)][-1]
    assert (end(pins, topic).last, end(pins, topic).mark_delete) == (last, (first, -1))


def test_a_pin_on_a_topic_with_data_begins_at_the_earliest_entry(topic, pins, transactions):
    ledger, _ = [transactions.send(str(topic), b"x") for _ in range(3)][-1]
    assert pins.open(topic).mark_delete == (ledger, -1)


def test_nothing_is_created_for_a_topic_that_is_missing(topic, pins, admin):
    missing = TopicName(topic.tenant, topic.namespace_part, "missing")
    with pytest.raises(TopicNotFoundError):
        pins.open(missing)
    assert missing not in admin.topics(topic.namespace)


@pytest.mark.parametrize("freed", [1, 3])
def test_a_pin_keeps_closed_ledgers_and_an_acknowledgement_frees_them_at_once(
    pulsar, topic, pins, admin, transactions, freed
):
    """One acknowledgement a second (managedLedgerDefaultMarkDeleteRateLimit): a faster one waits for up to a minute."""
    pins.open(topic)
    for _ in range(3):
        transactions.send(str(topic), b"x")
        unload(pulsar, topic, transactions)
    transactions.send(str(topic), b"x")
    kept = ledgers(admin, topic)
    assert len(kept) == 4
    pins.acknowledge(topic, Position(0, kept[freed], -1))
    until(lambda: ledgers(admin, topic) == kept[freed:])
    assert end(pins, topic).mark_delete == (kept[freed], -1)


def test_a_mark_delete_at_the_end_of_a_closed_ledger_stays_there(pulsar, topic, pins, admin, transactions):
    """That ledger goes at the periodic check (retentionCheckIntervalInSeconds), or once the mark-delete is in the
    next."""
    pins.open(topic)
    last = transactions.send(str(topic), b"x")
    unload(pulsar, topic, transactions)
    transactions.send(str(topic), b"x")
    pins.acknowledge(topic, Position(0, *last))
    assert end(pins, topic).mark_delete == last

    def trimmed():
        pulsar.admin("POST", f"{topic.rest_path}/trim")  # as the periodic check does
        return last[0] not in ledgers(admin, topic)

    until(trimmed)
    assert end(pins, topic).mark_delete == last


def test_an_acknowledgement_behind_the_last_entry_gets_a_receipt_and_changes_nothing(
    pulsar, topic, pins, admin, transactions
):
    """So the start of an open ledger without entries cannot be acknowledged, only the last entry of the ledger
    before."""
    before = pins.open(topic).mark_delete
    last = transactions.send(str(topic), b"x")
    unload(pulsar, topic, transactions)
    until(lambda: end(pins, topic).last == last)
    closed, current = ledgers(admin, topic)
    pins.acknowledge(topic, Position(0, current, -1))
    assert end(pins, topic).mark_delete == before
    pins.acknowledge(topic, Position(0, *last))
    assert end(pins, topic).mark_delete == last
    assert closed == last[0]


def test_acknowledging_again_or_less_changes_nothing(topic, pins, transactions):
    pins.open(topic)
    sent = [transactions.send(str(topic), b"x") for _ in range(5)]
    pins.acknowledge(topic, Position(0, *sent[3]))
    pins.acknowledge(topic, Position(0, *sent[3]))
    pins.acknowledge(topic, Position(0, *sent[1]))
    assert end(pins, topic).mark_delete == sent[3]


def test_a_pin_survives_an_unload(pulsar, topic, pins, transactions):
    pins.open(topic)
    sent = [transactions.send(str(topic), b"x") for _ in range(3)]
    pins.acknowledge(topic, Position(0, *sent[0]))
    until(
        lambda: cursor(pulsar, topic)["state"] == "Open"
    )  # the first one makes the cursor's ledger; an unload may overtake it
    unload(pulsar, topic, transactions)
    found = until(lambda: end(pins, topic))
    assert (found.last, found.mark_delete) == (sent[2], sent[0])
    pins.acknowledge(topic, Position(0, *sent[1]))
    assert end(pins, topic).mark_delete == sent[1]


def cursor(pulsar, topic):
    return pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["cursors"]["__offloader"]


def test_one_holder_at_a_time(topic, pins, settings):
    other = BrokerPins(settings)
    pins.open(topic)
    with pytest.raises(SubscriptionBusyError):
        other.open(topic)
    pins.drop(topic)
    other.open(topic)
    with pytest.raises(SubscriptionBusyError):
        pins.open(topic)
    other.close()
    pins.open(topic)


def test_release_deletes_the_subscription_and_drop_keeps_it(pulsar, topic, pins):
    pins.open(topic)
    pins.drop(topic)
    assert pulsar.admin("GET", f"{topic.rest_path}/subscriptions").json() == ["__offloader"]
    pins.open(topic)
    pins.release(topic)
    assert pulsar.admin("GET", f"{topic.rest_path}/subscriptions").json() == []


def test_the_subscription_names_the_application_and_keeps_the_token_that_it_was_made_with(pulsar, topic, pins, admin):
    pins.open(topic)
    token = admin.pin_token(topic, "__offloader")
    pins.drop(topic)
    pins.open(topic)
    found = pulsar.admin("GET", f"{topic.rest_path}/stats").json()["subscriptions"]["__offloader"]
    assert token
    assert found["subscriptionProperties"] == {"application": "tests", "pin": token}
    assert found["consumers"][0]["consumerName"] == "tests"
    assert found["consumers"][0]["availablePermits"] == 0


def test_a_deleted_topic_is_not_found_and_a_new_one_is_pinned_from_its_start(pulsar, topic, pins, admin, transactions):
    pins.open(topic)
    transactions.send(str(topic), b"x")
    before = admin.topic_info(topic).created
    pulsar.admin("DELETE", f"{topic.rest_path}?force=true")
    with pytest.raises(TopicNotFoundError):
        end(pins, topic)
    pulsar.admin("PUT", topic.rest_path)
    assert end(pins, topic).mark_delete == (ledgers(admin, topic)[0], -1)
    assert admin.topic_info(topic).created != before


def test_a_subscription_deleted_behind_our_back_is_made_again_and_noticed(pulsar, topic, pins, transactions, caplog):
    pins.open(topic)
    sent = [transactions.send(str(topic), b"x") for _ in range(3)]
    pins.acknowledge(topic, Position(0, *sent[1]))
    end(pins, topic)
    pulsar.admin("DELETE", f"{topic.rest_path}/subscription/__offloader?force=true")
    found = until(lambda: end(pins, topic))
    assert found.mark_delete == (sent[0][0], -1)
    assert "went back" in caplog.text


def test_an_unloaded_empty_topic_is_still_pinned(pulsar, topic, pins, admin, transactions):
    opened = pins.open(topic)
    unload(pulsar, topic, transactions)
    found = until(lambda: end(pins, topic))
    (current,) = ledgers(admin, topic)
    assert current != opened.mark_delete[0], "an empty ledger is replaced when its topic is loaded again"
    assert found.last is None
    assert found.mark_delete <= (current, -1)


def test_many_topics_over_one_connection(new_topic, pins, transactions):
    topics = [new_topic() for _ in range(40)]
    for topic in topics:
        pins.open(topic)
    sent = {topic: transactions.send(str(topic), b"x") for topic in topics[::2]}
    ends = pins.ends(topics)
    assert {topic: found.last for topic, found in ends.items()} == {topic: sent.get(topic) for topic in topics}
