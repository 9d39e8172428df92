"""A managed ledger's state from the two admin answers, as Pulsar 4.0.7 gives them."""

import pytest

from offloader.errors import BrokerUnavailableError, ProtocolError
from offloader.model import LedgerSpan
from offloader.pulsar.subscription_rest import keeps_properties, pin_token
from offloader.pulsar.topic_rest import topic_info

INFO = {"version": 1, "creationDate": "2026-11-21T12:12:20.531Z"}


def stats(ledgers, confirmed, *, state="LedgerOpened", current=(0, 0)):
    return {
        "ledgers": [{"ledgerId": i, "entries": n, "size": s, "offloaded": o} for i, n, s, o in ledgers],
        "lastConfirmedEntry": confirmed,
        "cursors": {},
        "state": state,
        "currentLedgerEntries": current[0],
        "currentLedgerSize": current[1],
    }


def test_the_open_ledgers_own_counts_are_in_the_current_ones():
    found = topic_info(INFO, stats([(3, 50, 500, True), (7, 0, 0, False)], "7:4", current=(5, 50)))
    assert found.ledgers.spans == (LedgerSpan(3, 49), LedgerSpan(7, None))
    assert found.sizes == {3: (50, 500), 7: (5, 50)}
    assert found.last_confirmed == (7, 4)
    assert found.created == 1_795_263_140_531
    assert found.offloaded == {3}
    assert not found.terminated


@pytest.mark.parametrize(
    ("version", "ledgers", "trimmed"), [(1, 1, False), (3, 3, False), (3, 2, True), (None, 1, True)]
)
def test_a_record_that_changed_more_often_than_ledgers_are_listed_may_have_lost_some(version, ledgers, trimmed):
    info = {**INFO, "version": version, "ledgers": [{"ledgerId": n} for n in range(ledgers)]}
    assert topic_info(info, stats([(13, 0, 0, False)], "13:-1")).may_have_trimmed is trimmed


def test_a_shadow_topic_names_its_source():
    source = "persistent://public/default/source"
    info = {**INFO, "ledgers": [], "properties": {"PULSAR.SHADOW_SOURCE": source}}
    assert topic_info(info, stats([(13, 0, 0, False)], "13:-1")).shadow_of == source
    assert not topic_info({**INFO, "properties": None}, stats([(13, 0, 0, False)], "13:-1")).shadow_of
    with pytest.raises(ProtocolError, match="properties"):
        topic_info({**INFO, "properties": ["x"]}, stats([(13, 0, 0, False)], "13:-1"))


def test_a_new_topic_is_empty():
    found = topic_info(INFO, stats([(13, 0, 0, False)], "13:-1"))
    assert found.last_confirmed is None
    assert found.ledgers.spans == (LedgerSpan(13, None),)


def test_the_last_entry_may_be_in_the_ledger_before():
    found = topic_info(INFO, stats([(8, 50000, 1, False), (9, 0, 0, False)], "8:49999"))
    assert found.last_confirmed == (8, 49999)
    assert found.ledgers.spans == (LedgerSpan(8, 49999), LedgerSpan(9, None))


def test_counts_of_the_full_ledger_are_not_those_of_its_empty_successor():
    """Seen with 4.0.7 while it changes ledgers: what is not there yet must not be taken for data, or later for a
    loss."""
    found = topic_info(INFO, stats([(8, 500, 21249, False), (9, 0, 0, False)], "8:499", current=(500, 21249)))
    assert found.sizes == {8: (500, 21249), 9: (0, 0)}


def test_a_ledger_that_was_closed_without_a_next_one_is_closed():
    found = topic_info(INFO, stats([(8, 10, 1, False)], "8:9", state="ClosedLedger"))
    assert found.ledgers.spans == (LedgerSpan(8, 9),)


def test_a_ledger_was_written_from_the_close_of_the_one_before_to_its_own():
    """Where the list says both, and they do not contradict each other. An open ledger's time is made up; one that an
    unload has left has none."""
    ledgers = [(3, 50, 1_000), (5, 9, 4_000), (6, 9, 3_500), (7, 9, 0), (8, 9, 9_000), (9, 0, 9_500)]
    info = INFO | {"ledgers": [{"ledgerId": i, "entries": n, "timestamp": at} for i, n, at in ledgers]}
    found = topic_info(info, stats([(i, n, 10 * n, False) for i, n, _ in ledgers], "8:8"))
    assert found.written == {5: (1_000, 4_000)}


@pytest.mark.parametrize("entries", [0, 3])
def test_a_terminated_topics_last_ledger_is_closed_before_its_record_says_so(entries):
    found = topic_info(INFO, stats([(375, entries, 0, False)], "375:2", state="Terminated", current=(3, 30)))
    assert found.ledgers.spans == (LedgerSpan(375, 2),)
    assert found.sizes[375][0] == 3
    assert found.terminated


def test_a_topic_terminated_with_an_empty_last_ledger():
    found = topic_info(INFO, stats([(8, 10, 1, False), (9, 0, 0, False)], "8:9", state="Terminated"))
    assert found.ledgers.spans == (LedgerSpan(8, 9), LedgerSpan(9, -1))


@pytest.mark.parametrize(
    "broken", [{}, {"ledgers": None}, {**stats([(1, 1, 1, False)], "1"), "cursors": {}, "state": "x"}]
)
def test_answers_that_we_do_not_know_are_refused(broken):
    with pytest.raises(ProtocolError):
        topic_info(INFO, broken)
    with pytest.raises(ProtocolError):
        topic_info({}, stats([(1, 1, 1, False)], "1:0"))


def with_ledger(**said):
    answer = stats([(375, 3, 30, False), (376, 0, 0, False)], "376:1", current=(2, 20))
    answer["ledgers"][0] |= said
    return answer


NO_COUNTS = ["5", 5.0, None, True, -1, 2**63, [], {}]


@pytest.mark.parametrize("wrong", NO_COUNTS)
@pytest.mark.parametrize("of", ["ledgerId", "entries", "size", "currentLedgerEntries", "currentLedgerSize"])
def test_a_count_that_is_none_is_refused(of, wrong):
    answer = with_ledger(**{of: wrong}) if of in ("ledgerId", "entries", "size") else {**with_ledger(), of: wrong}
    with pytest.raises(ProtocolError):
        topic_info(INFO, answer)


@pytest.mark.parametrize("wrong", ["375:-2", "-2:0", f"375:{2**63}", f"{2**63}:0", "375:", "3:7:5", 375, None])
def test_a_position_that_is_none_is_refused(wrong):
    with pytest.raises(ProtocolError):
        topic_info(INFO, {**with_ledger(), "lastConfirmedEntry": wrong})


def test_names_of_subscriptions_are_told_as_users_wrote_them():
    answer = {**stats([(1, 1, 1, False)], "1:0"), "cursors": {"my+subscription": {}, "a%2Fb%2Bc": {}}}
    assert topic_info(INFO, answer).subscriptions == {"my subscription", "a/b+c"}


def test_all_ledgers_that_a_broker_reports_are_known():
    answer = {
        **stats([(7, 1, 1, False)], "7:0"),
        "cursors": {"one": {"cursorLedger": 3}, "two": {"cursorLedger": -1}},
        "compactedLedger": {"ledgerId": 4, "entries": 1},
        "schemaLedgers": [{"ledgerId": 5}],
    }
    assert topic_info(INFO, answer).all_ledgers - {-1} == {3, 4, 5, 7}


def subscribed(said):
    return {"subscriptions": {"__offloader": said, "other": {"subscriptionProperties": {"pin": "another"}}}}


@pytest.mark.parametrize(
    ("said", "token"),
    [
        ({"subscriptionProperties": {"application": "a", "pin": "one"}}, "one"),
        ({"subscriptionProperties": {"application": "a"}}, ""),
        ({"subscriptionProperties": {}}, ""),
        ({"subscriptionProperties": None}, None),
        ({}, None),
    ],
)
def test_a_subscription_says_which_one_it_is(said, token):
    assert pin_token(subscribed(said), "__offloader") == token


def test_a_subscription_that_is_not_there_now_is_worth_another_try():
    with pytest.raises(BrokerUnavailableError):
        pin_token({"subscriptions": {}}, "__offloader")


@pytest.mark.parametrize(
    "damaged",
    [None, [], {}, {"subscriptions": None}, {"subscriptions": []}, subscribed([]),
     subscribed({"subscriptionProperties": []}), subscribed({"subscriptionProperties": {"pin": 3}}),
     subscribed({"subscriptionProperties": {"pin": None}})],
)  # fmt: skip
def test_an_answer_of_another_form_says_nothing_of_a_subscription(damaged):
    with pytest.raises((ProtocolError, BrokerUnavailableError)):
        pin_token(damaged, "__offloader")


@pytest.mark.parametrize(
    ("version", "keeps"),
    [("2.8.4", False), ("2.10.0", False), ("2.10", False), ("2.10.1", True), ("2.11.0-SNAPSHOT", True), ("4.0.7", True),
     ("4.1", True), ("10.0.0", True), ("2.10.3.9\n", True), ("2.10_3.1", False)],
)  # fmt: skip
def test_since_which_version_a_subscription_keeps_its_properties(version, keeps):
    assert keeps_properties(version) is keeps


@pytest.mark.parametrize("answer", ["", "null", "[]", "<html>sign in</html>", "default backend - 404"])
def test_an_answer_that_is_no_version_says_nothing_of_what_a_broker_keeps(answer):
    with pytest.raises(BrokerUnavailableError, match="its version is"):
        keeps_properties(answer)
