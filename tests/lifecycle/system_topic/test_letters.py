"""Retry letters and dead letters are those of Pulsar's Java client, and nobody's properties do more than delay or end
his own message."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from offloader.lifecycle.deletion.system_topic.letters import early_by, failed_letter, times_of
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.timing import DeletionTiming
from tests.times import DAY_MS

from .support import MARK as OURS

DELAY_TIME = "DELAY_TIME"
LONGEST_WHY = 1000
RECONSUME_TIMES = "RECONSUMETIMES"
MARK = "offloader-mark"

TIMING = DeletionTiming()
TOPIC = "persistent://pulsar/system/__ledger_deletion-partition-1"
NOW = 1_800_000_000_000
said = st.text(max_size=25) | st.integers().map(str)
properties = st.dictionaries(st.sampled_from([RECONSUME_TIMES, DELAY_TIME, "x"]), said)


def test_a_first_failure_is_written_as_java_does() -> None:
    letter = failed_letter({"mine": "1"}, TOPIC, "12:0:1", 0, "no answer", TIMING)
    assert letter.delay == 600_000
    assert letter.properties == {
        "mine": "1",
        "RECONSUMETIMES": "1",
        "DELAY_TIME": "600000",
        "REAL_TOPIC": TOPIC,
        "REAL_SUBSCRIPTION": "ledger-deletion-worker",
        "ORIGIN_MESSAGE_ID": "12:0:1",
        "ORIGIN_MESSAGE_IDY_TIME": "12:0:1",
        "offloader-why": "no answer",
    }


def test_a_message_is_tried_once_and_as_often_again_as_is_set_and_its_origin_stays() -> None:
    delays, found = [], {}
    letter = failed_letter({}, TOPIC, "12:0:1", 0, "no", TIMING)
    while letter.delay is not None:
        delays.append(letter.delay)
        found = dict(letter.properties)
        letter = failed_letter(found, f"{TOPIC}-RETRY", "99:9:9", 0, "no", TIMING)
    assert len(delays) == TIMING.max_tries == 10
    assert delays == sorted(delays)
    assert delays[:3] == [600_000, 1_200_000, 2_400_000]
    assert max(delays) == DAY_MS
    assert (found["ORIGIN_MESSAGE_ID"], found["REAL_TOPIC"]) == ("12:0:1", TOPIC)


@given(properties, st.integers(0, 2**64), st.text())
def test_forged_properties_delay_no_longer_than_a_letter_of_ours_and_end_no_other_message(
    forged: dict[str, str], published: int, why: str
) -> None:
    assert 0 <= times_of(forged) < 2**31
    assert 0 <= early_by(forged, published, NOW, TIMING) <= DAY_MS
    letter = failed_letter(forged, TOPIC, "1:1:1", 0, why, TIMING)
    assert letter.delay is None or letter.delay <= DAY_MS
    assert times_of(letter.properties) >= min(times_of(forged) + 1, 2**31 - 1)
    assert len(letter.properties["offloader-why"]) <= LONGEST_WHY
    assert letter.properties["REAL_SUBSCRIPTION"] == "ledger-deletion-worker"


def test_what_came_too_often_without_an_answer_is_given_up_unless_it_came_too_early() -> None:
    assert failed_letter({}, TOPIC, "1:1:1", 11, "no", TIMING).delay is not None
    assert failed_letter({}, TOPIC, "1:1:1", 12, "no", TIMING).delay is None
    letter = failed_letter({}, TOPIC, "1:1:1", 0, "no", TIMING).properties  # of ten minutes
    assert failed_letter(letter, TOPIC, "1:1:1", 21, "no", TIMING).delay is not None
    assert failed_letter(letter, TOPIC, "1:1:1", 22, "no", TIMING).delay is None
    assert failed_letter({DELAY_TIME: "9" * 18}, TOPIC, "1:1:1", 12, "no", TIMING).delay is None


def test_a_letter_that_comes_at_once_waits_and_one_of_the_future_does_not() -> None:
    letter = failed_letter({}, TOPIC, "1:1:1", 0, "no", TIMING).properties
    assert early_by(letter, NOW, NOW, TIMING) == 600_000
    assert early_by(letter, NOW, NOW + 599_999, TIMING) == 1
    assert early_by(letter, NOW, NOW + 600_000, TIMING) == 0
    assert early_by(letter, NOW + 1, NOW, TIMING) == 0
    assert early_by({DELAY_TIME: str(DAY_MS + 1)}, NOW, NOW, TIMING) == 0
    assert early_by({}, NOW, NOW, TIMING) == 0


@given(st.binary(max_size=9), st.binary(max_size=9), st.text(max_size=9))
def test_a_mark_is_ours_on_our_bytes_only(data: bytes, other: bytes, forged: str) -> None:
    mark = OURS.of_message(data)
    assert OURS.is_on_message(data, {**mark, RECONSUME_TIMES: "3"})
    assert OURS.is_on_message(other, mark) == (other == data)
    assert not OURS.is_on_message(data, {MARK: forged})
    assert not OURS.is_on_message(data, {})
    assert not OwnMark(b"another secret").is_on_message(data, mark)
    with suppress(UnicodeDecodeError):
        assert not OURS.is_on_consumer(data.decode(), mark)  # a message's mark is no consumer's
    assert not OURS.is_on_consumer("c", {MARK: 3})
    assert OURS.is_on_consumer("c", OURS.of_consumer("c"))
    assert not OURS.is_on_consumer("d", OURS.of_consumer("c"))
