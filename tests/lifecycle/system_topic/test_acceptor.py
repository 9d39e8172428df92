"""What others send is a candidate and nothing more; each message gets an answer, is tried again, or is given up, and
none is lost or believed, whenever we are stopped."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from integration.soak import SOAK
from offloader.errors import (
    AuthorizationFailedError,
    BrokerUnavailableError,
    MetadataUnavailableError,
    OvertakenError,
)
from offloader.lifecycle.deletion.system_topic.answers import MessageAnswer, MessageVerdict
from offloader.lifecycle.deletion.system_topic.interfaces import SystemTopicName
from offloader.lifecycle.deletion.system_topic.messages import (
    AVRO_SCHEMA,
    PendingDeleteMessage,
    read_message,
    write_message,
)
from tests.lifecycle.deletion.support import candidate
from tests.times import DAY_MS

from .memory import LOST, KilledError, MemoryTopics
from .support import INTERVAL, MARK, TIMING, Examiner, Told, acceptor, asked, publisher

LARGEST = 64 * 1024
SHARE = 100
SOON = 1.0
PUT_BACK_MS = 60_000
RECONSUME_TIMES = "RECONSUMETIMES"

SEEDS = range(300 if SOAK else 40)
DELETION, RETRY, DEAD = SystemTopicName
FAILED = MessageAnswer(MessageVerdict.FAILED, "ZooKeeper is away")


def sent(topics: MemoryTopics, *ledgers: int) -> None:
    for ledger in ledgers:
        topics.put(DELETION, write_message(asked(ledger)))


@pytest.mark.parametrize("verdict", [each for each in MessageVerdict if each is not MessageVerdict.FAILED])
def test_every_answer_is_a_success_and_ends_the_message(verdict: MessageVerdict) -> None:
    topics, told = MemoryTopics(), Told()
    sent(topics, 7)
    examine = Examiner(lambda _: MessageAnswer(verdict))
    assert acceptor(topics, examine, told).run() == INTERVAL
    assert examine.asked == [asked(7)]
    assert topics.left() == topics.left(RETRY) == topics.left(DEAD) == []
    assert told.counts == {"received": 1, "acknowledged": 1}


def test_the_topics_are_made_where_they_are_missing_and_dead_letters_are_kept() -> None:
    topics = MemoryTopics()
    acceptor(topics, Examiner()).run()
    name = "persistent/pulsar/system/__ledger_deletion"
    assert topics.partitions == {name: 4, f"{name}-RETRY": 1, f"{name}-DLQ": 1}
    assert f"PUT {name}-DLQ/subscription/offloader-dead-letters" in topics.requests


def test_a_failure_is_tried_again_after_a_delay_that_grows_and_at_last_given_up() -> None:
    topics, told, examine = MemoryTopics(), Told(), Examiner(lambda _: FAILED)
    sent(topics, 7)
    task = acceptor(topics, examine, told)
    waits = []
    while not topics.left(DEAD):
        before = len(examine.asked)
        task.run()
        assert len(examine.asked) - before <= 1
        if len(examine.asked) > before:
            waits.append(topics.now)
        topics.now += 100_000
    assert [b - a for a, b in pairwise(waits)] == [600_000, 1_200_000, 2_400_000]
    assert topics.left() == topics.left(RETRY) == []
    (dead,) = topics.left(DEAD)
    assert read_message(dead.data) == asked(7)
    assert dead.properties[RECONSUME_TIMES] == "4"
    assert dead.properties["ORIGIN_MESSAGE_ID"] == "1:0:0"
    assert dead.properties["offloader-why"] == "ZooKeeper is away"
    assert told.counts == {"received": 4, "acknowledged": 4, "sent again": 3, "gave up": 1}


def test_an_error_is_a_failure_and_not_the_end() -> None:
    def raises(message: PendingDeleteMessage) -> MessageAnswer:
        if message.ledger_id == 7:
            raise MetadataUnavailableError("no answer")
        return MessageAnswer(MessageVerdict.MARKED)

    topics = MemoryTopics()
    sent(topics, 7, 8)
    acceptor(topics, Examiner(raises)).run()
    assert topics.left() == []
    assert [read_message(one.data).ledger_id for one in topics.left(RETRY)] == [7]


def test_whoever_was_overtaken_ends_and_answers_nothing() -> None:
    def raises(_: PendingDeleteMessage) -> MessageAnswer:
        raise OvertakenError("another process has the journal")

    topics = MemoryTopics()
    sent(topics, 7, 8)
    with pytest.raises(OvertakenError):
        acceptor(topics, Examiner(raises)).run()
    assert len(topics.left()) == 2
    assert topics.consumers == {}


def test_our_own_messages_are_known_when_they_come_back_and_forged_ones_are_not_taken_for_them() -> None:
    topics, examine = MemoryTopics(), Examiner()
    data = write_message(asked(7))
    topics.put(DELETION, data, MARK.of_message(data))
    topics.put(RETRY, data, {**MARK.of_message(data), RECONSUME_TIMES: "2"})  # a foreign worker's letter
    topics.put(DELETION, write_message(asked(8)), MARK.of_message(data))  # forged
    acceptor(topics, examine).run()
    assert examine.asked == [asked(8)]
    assert topics.left() == topics.left(RETRY) == []


def test_invalid_messages_are_told_acknowledged_and_never_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    topics, examine = MemoryTopics(), Examiner()
    for data in (b"", b"\xff" * 99, b"{}", b'{"ledgerId": "7"}', b"\x02" * LARGEST * 2, b"\0" * 5 * 2**20):
        topics.put(DELETION, data)
    topics.put(DELETION, write_message(asked(7)), {"large": "x" * LARGEST})
    acceptor(topics, examine).run()
    assert examine.asked == []
    assert topics.left() == topics.left(RETRY) == topics.left(DEAD) == []
    assert Counter(record.__dict__["see"] for record in caplog.records) == {"deletion-message-invalid": 7}


def test_a_message_is_read_by_the_schema_that_it_was_written_with() -> None:
    extended = {**AVRO_SCHEMA, "fields": [{"name": "first", "type": "string"}, *AVRO_SCHEMA["fields"]]}  # type: ignore[misc]
    topics, examine = MemoryTopics(), Examiner()
    topics.schemas = {
        0: {"type": "AVRO", "data": json.dumps(AVRO_SCHEMA)},
        200: {"type": "AVRO", "data": json.dumps(extended)},
        5: {"type": "AVRO", "data": "[" * 100_000},
        6: {"type": 3},
    }
    topics.put(DELETION, write_message(asked(7)), schema=0)
    topics.put(DELETION, b"\x02a" + write_message(asked(8)), schema=200)
    topics.put(DELETION, write_message(asked(9)), schema=4)  # of a registry that was deleted: ours
    topics.put(DELETION, write_message(asked(10)), schema=5)  # poisoned
    acceptor(topics, examine).run()
    assert [one.ledger_id for one in examine.asked] == [7, 8, 9]
    assert topics.left() == []


@pytest.mark.parametrize("status", [403, 500])
def test_while_a_schema_cannot_be_read_its_messages_wait(status: int, caplog: pytest.LogCaptureFixture) -> None:
    topics, examine = MemoryTopics(), Examiner()
    topics.schemas[0] = {"type": "AVRO", "data": json.dumps(AVRO_SCHEMA)}
    task = acceptor(topics, examine)
    task.run()
    topics.put(DELETION, write_message(asked(7)), schema=0)
    topics.status = status
    task.run()
    assert examine.asked == []
    assert "deletion-message-waits" in {record.__dict__["see"] for record in caplog.records}
    topics.status = 0
    topics.now += PUT_BACK_MS
    task.run()
    assert [one.ledger_id for one in examine.asked] == [7]
    assert topics.left() == []


def test_a_topic_that_was_made_anew_has_its_schemas_from_anew() -> None:
    topics, examine = MemoryTopics(), Examiner()
    task = acceptor(topics, examine)
    topics.schemas[0] = {"type": "AVRO", "data": '"string"'}
    topics.put(DELETION, b"\x02a", schema=0)
    task.run()
    topics.schemas[0] = {"type": "AVRO", "data": json.dumps(AVRO_SCHEMA)}
    topics.put(DELETION, write_message(asked(7)), schema=0)
    task.run()
    assert [one.ledger_id for one in examine.asked] == [7]


def test_two_thousand_at_once_come_in_shares_and_the_same_ones_are_looked_at_once() -> None:
    topics, examine, told = MemoryTopics(), Examiner(), Told()
    for number in range(2_000):
        topics.put(DELETION, write_message(asked(number % 50)))
    task = acceptor(topics, examine, told)
    assert task.run() == SOON
    assert told.counts["received"] == SHARE
    assert len(examine.asked) == 50
    runs = 1
    while task.run() == SOON:
        runs += 1
    assert runs == 2_000 // SHARE
    assert topics.left() == []


def test_a_broker_that_does_not_delay_makes_us_wait_by_ourselves() -> None:
    topics, examine = MemoryTopics(delays=False), Examiner(lambda _: FAILED)
    sent(topics, 7)
    task = acceptor(topics, examine)
    for _ in range(60):
        task.run()
        topics.now += 10_000
    assert len(examine.asked) == 1
    for _ in range(20):
        task.run()
        topics.now += 10_000
    assert len(examine.asked) == 2
    assert topics.left(DEAD) == []


@pytest.mark.parametrize("error", [LOST, AuthorizationFailedError("no"), BrokerUnavailableError("away")], ids=repr)
def test_while_a_letter_cannot_be_sent_its_message_stays(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    topics, told = MemoryTopics(), Told()
    sent(topics, 7)
    topics.refused[RETRY] = error
    task = acceptor(topics, Examiner(lambda _: FAILED), told)
    task.run()
    assert len(topics.left()) == 1
    assert "acknowledged" not in told.counts
    assert [record.__dict__["see"] for record in caplog.records] == ["deletion-message-waits"]
    topics.refused.clear()
    topics.now += PUT_BACK_MS
    task.run()
    assert (len(topics.left()), len(topics.left(RETRY))) == (0, 1)


def test_what_came_again_and_again_without_an_answer_is_given_up_with_its_next_failure() -> None:
    topics, examine = MemoryTopics(), Examiner(lambda _: FAILED)
    sent(topics, 7, 8)
    topics.stored[DELETION][0].deliveries = TIMING.max_tries + 2
    acceptor(topics, examine).run()
    assert [one.ledger_id for one in examine.asked] == [7, 8]
    assert [read_message(one.data).ledger_id for one in topics.left(DEAD)] == [7]
    assert topics.left() == []


def test_a_long_trouble_with_letters_ends_no_message_that_then_gets_an_answer() -> None:
    topics, answer = MemoryTopics(), [FAILED]
    sent(topics, 7)
    topics.refused[RETRY] = topics.refused[DEAD] = BrokerUnavailableError("away")
    task = acceptor(topics, Examiner(lambda _: answer[0]))
    for _ in range(100):
        task.run()
        topics.now += PUT_BACK_MS
    topics.refused.clear()
    answer[0] = MessageAnswer(MessageVerdict.MARKED)
    task.run()
    assert topics.left() == topics.left(DEAD) == []


def test_a_forged_count_ends_only_the_message_that_says_it() -> None:
    topics = MemoryTopics()
    topics.put(DELETION, write_message(asked(7)), {RECONSUME_TIMES: "9" * 12})
    topics.put(DELETION, write_message(asked(8)), {RECONSUME_TIMES: "-5"})
    acceptor(topics, Examiner(lambda _: FAILED)).run()
    assert [read_message(one.data).ledger_id for one in topics.left(DEAD)] == [7]
    assert [read_message(one.data).ledger_id for one in topics.left(RETRY)] == [8]


def test_topics_that_are_deleted_while_we_consume_are_made_again() -> None:
    topics = MemoryTopics()
    task = acceptor(topics, Examiner())
    task.run()
    (name,) = topics.consumers
    topics.partitions.clear()
    topics.connected = False
    task.run()
    assert list(topics.consumers) == [name], "the client may come back by itself"
    topics.now += 61_000
    task.run()
    assert topics.partitions
    assert list(topics.consumers) != [name]
    sent(topics, 7)
    task.run()
    assert topics.left() == []


def test_partitions_that_their_clients_made_anew_are_not_taken_for_the_topic() -> None:
    topics = MemoryTopics()
    task = acceptor(topics, Examiner())
    task.run()
    (name,) = topics.consumers
    topics.partitions.clear()
    topics.left_over = True
    topics.now += 61_000
    task.run()
    assert topics.connected
    assert list(topics.consumers) != [name]
    assert topics.partitions["persistent/pulsar/system/__ledger_deletion"] == 0, "one without partitions is what we get"
    assert publisher(topics).announce(candidate(7))


@pytest.mark.parametrize("there", [0, 1, 9])
def test_topics_that_somebody_else_made_are_taken_as_they_are(there: int) -> None:
    topics = MemoryTopics()
    topics.partitions["persistent/pulsar/system/__ledger_deletion"] = there
    sent(topics, 7)
    acceptor(topics, Examiner()).run()
    assert topics.left() == []
    assert topics.partitions["persistent/pulsar/system/__ledger_deletion"] == there


def test_a_role_that_may_not_make_them_is_told_what_to_do() -> None:
    topics = MemoryTopics(status=403)
    with pytest.raises(AuthorizationFailedError):
        acceptor(topics, Examiner()).run()


# Killed at any step, with lost answers and messages of others between: nothing is lost, and each letter has its origin.


def answer_by(ledger: int) -> MessageAnswer:
    """A third fails always, the others never."""
    return FAILED if ledger % 3 == 0 else MessageAnswer(MessageVerdict.MARKED)


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_between_any_two_steps_no_message_is_lost(seed: int) -> None:
    rng, topics = Random(seed), MemoryTopics()
    steps_left = [rng.randrange(1, 25)]

    def step(_: str) -> None:
        steps_left[0] -= 1
        if steps_left[0] == 0:
            raise KilledError

    topics.on_step = step
    ledgers = range(1, 13)
    sent(topics, *ledgers)
    examine = Examiner(lambda message: answer_by(message.ledger_id))
    task, kills = acceptor(topics, examine), 0
    while topics.left() or topics.left(RETRY):
        try:
            task.run()
        except KilledError:
            kills += 1
            for name in list(topics.consumers):
                topics.gone(name)
            task = acceptor(topics, examine)
            steps_left[0] = rng.randrange(1, 40) if kills < 20 else 10**9
        topics.now += rng.choice([0, 60_000, 600_000, DAY_MS])
        assert topics.now < 1_800_000_000_000 + 10_000 * DAY_MS, "it does not end"
    assert kills
    answered = {one.ledger_id for one in examine.asked}
    given_up = [read_message(one.data).ledger_id for one in topics.left(DEAD)]
    assert answered == set(ledgers)
    assert set(given_up) == {ledger for ledger in ledgers if ledger % 3 == 0}
    for one in topics.stored[RETRY] + topics.stored[DEAD]:
        assert one.properties["ORIGIN_MESSAGE_ID"] in {f"1:{number}:0" for number in range(12)}
    assert len(topics.stored[RETRY]) <= 4 * 3 + 3 * kills, "duplicates only where we were killed"
