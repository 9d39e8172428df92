"""The page shows who needs somebody first, what to do about it, and never more than one page of topics."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.model import FailureKind, Lane, RollReason, TopicName
from offloader.offload.driver.topic_status import _OF_KINDS
from offloader.offload.live.page import remedy_of, sections
from offloader.offload.live.status import Need, Trouble
from offloader.offload.live.view import LaneStatus, LiveView, Ordered
from offloader.pages.access import PageAccess
from tests.offload.live.showing import MINUTE, NOW, Shown, caught_up, names, opened, topic, view

NEEDS_YOU = "Needs you"
PER_PAGE = 50

FAILED = Trouble("the role may not", "slice-failed", FailureKind.FATAL, 7, NOW + 3 * MINUTE)
MOVED = Trouble("the subscription stands at 9:9", "pin-moved")


def test_who_needs_you_stands_first_then_what_lags_most():
    topics = (
        caught_up("quiet"),
        opened("little", 10),
        opened("late", 1, age_ms=21 * MINUTE),
        opened("much", 10**6),
        opened("failing", 5, trouble=FAILED),
        opened("endangered", 1, trouble=MOVED),
    )
    shown = Shown(view(*topics, refused=((topic("foreign"), "claimed by application other"),)))
    page = shown.page()
    assert names(page) == ["endangered", "failing", "foreign", "late", "much", "little", "quiet"]
    assert "4 of 7 topics need you." in page.text
    assert names(shown.page(f"/?state={NEEDS_YOU.replace(' ', '+')}")) == ["endangered", "failing", "foreign", "late"]


def test_where_nobody_is_needed_it_says_so():
    assert "All is well: 2 topics, nobody needs you." in Shown(view(caught_up("a"), opened("b"))).page().text
    assert "No topic is offloaded yet." in Shown(view()).page().text


@pytest.mark.parametrize(
    ("status", "need"),
    [
        (caught_up("t"), Need.NONE),
        (opened("t", age_ms=20 * MINUTE), Need.NONE),
        (opened("t", age_ms=20 * MINUTE + 1), Need.LATE),
        (opened("t", trouble=Trouble("a broker", "topic-silent", since=NOW - MINUTE + 1)), Need.NONE),
        (opened("t", trouble=Trouble("a broker", "topic-silent", since=NOW - MINUTE)), Need.TROUBLE),
        (opened("t", trouble=Trouble("the store", "slice-failed", FailureKind.RETRYABLE, 2)), Need.NONE),
        (opened("t", trouble=Trouble("the store", "slice-failed", FailureKind.RETRYABLE, 3)), Need.TROUBLE),
        (opened("t", trouble=Trouble("a record", "catalog-reloaded")), Need.TROUBLE),
        (opened("t", trouble=FAILED), Need.TROUBLE),
        (opened("t", trouble=Trouble("bytes", "slice-failed", FailureKind.INTEGRITY, 1)), Need.DANGER),
        (opened("t", trouble=Trouble("gone", "data-lost", FailureKind.DATA_LOST, 1)), Need.DANGER),
        (opened("t", trouble=MOVED), Need.DANGER),
    ],
)
def test_how_much_a_topic_needs_somebody(status, need):
    assert status.need(NOW) is need


def test_a_failure_comes_with_how_often_when_again_and_what_to_do():
    shown = Shown(view(opened("t", trouble=FAILED)))
    page = shown.page()
    assert "the role may not" in page.text
    assert "7 times in a row, again in 3 min" in page.text
    (link,) = [
        found["href"] for tag, found in page.elements if tag == "a" and "kind-fatal" in (found.get("href") or "")
    ]
    assert link == "/alarms#kind-fatal"
    assert "kind-fatal" in {found.get("id") for _, found in shown.page("/alarms").elements}
    told = shown.page("/topic?name=persistent://public/orders/t").text
    assert "What to do: what the line says" in re.sub(r"\s+", " ", told)


def test_every_trouble_that_a_topic_can_have_has_its_text_in_the_manual():
    named = {"pin-moved", "pin-past-bridge", "catalog-reloaded", "topic-silent", "not-acknowledged", "not-offloaded"}
    for alarm in {*named, "seal-failed", "slice-failed", "bridge-waits", "unforeseen", *_OF_KINDS.values()}:
        assert remedy_of(Trouble("", alarm)).name == alarm
    for kind in FailureKind:
        assert remedy_of(Trouble("", "slice-failed", kind)).name == f"kind-{kind}"


def test_texts_of_alarms_are_plain():
    held = (resources.files("offloader.offload.live") / "alarms.json").read_text(encoding="utf-8")
    assert len(json.loads(held)) == sum(map(len, sections().values())) > 60
    assert not re.search(r"\]\(|<a |\*\*", held)


def test_the_open_segment_fills_up_by_size_and_by_age():
    page = Shown(view(opened("t", age_ms=5 * MINUTE))).page()
    assert "1.0 MiB of 1.0 GiB" in page.text
    assert "5 min of 10 min" in page.text
    widths = {
        found["class"]: found["width"] for tag, found in page.elements if tag == "rect" and found.get("width") != "100"
    }
    assert widths == {"good": "0.1", "idle": "50.0"}
    assert "for 5 min" in page.text  # what is kept, since when


def test_the_last_hour_is_a_figure_and_a_table_beside_it():
    shown = Shown(view(opened("t")))
    assert "Nothing was uploaded in the last hour." in shown.page().text
    shown.metrics.offloaded(topic("t"), 60 * 2**20, 100)
    shown.seconds += 120
    shown.metrics.offloaded(topic("t"), 30 * 2**20, 50)
    page = shown.page()
    assert {"2 min ago: 1.0 MiB/s, 100 entries", "0 min ago: 512 KiB/s, 50 entries"} <= set(page.texts)
    assert page.tags.count("svg") >= 1
    assert "Up to 1.0 MiB/s" in page.text


def test_lanes_segments_and_what_waits_are_told():
    lanes = (LaneStatus(Lane.FAST, NOW - 2_000, 11, 20), LaneStatus(Lane.SLOW, 0, 0, 3))
    shown = Shown(LiveView(NOW, (opened("t"),), lanes=lanes))
    shown.metrics.segment(RollReason.AGE, topic("t"), 5 * 2**20)
    shown.metrics.work("acknowledge", 1, 8, 190.0)
    shown.metrics.work("seal", 1, 1, 2.0)
    shown.metrics.bridges({}, {}, {"blocked": 2})
    text = re.sub(r"\s+", " ", " ".join(shown.page().texts))
    assert "fast 20 11 slices for 2 s" in text
    assert "slow 3 nothing" in text
    assert "t age 5.0 MiB 0 s" in text
    assert "Work that waits: acknowledge for 3 min 10 s." in text
    assert "bridge blocked 2" in text


def test_topics_are_paged_and_found_by_a_part_of_their_name_and_their_state():
    shown = Shown(view(*(caught_up(f"t{n:03}") for n in range(120)), opened("Other")))
    assert len(names(shown.page())) == PER_PAGE
    assert names(shown.page("/?page=3"))[-1] == "t119"
    assert "Page 3 of 3" in shown.page("/?page=99").text
    assert names(shown.page("/?q=OTHER")) == ["Other"]
    assert names(shown.page("/?state=Assigned")) == ["Other"]
    assert names(shown.page("/?q=t00&state=Assigned")) == []
    assert shown.ask("/?page=x").status == 400


def test_a_topic_that_nobody_offloads_and_an_application_that_starts_are_one_line_each():
    assert Shown(view()).ask("/topic?name=public/orders/nowhere").status == 400
    assert Shown(view()).ask("/topic?name=http://x").status == 400
    starting = Shown()
    assert starting.ask("/").status == 503
    assert "is starting" in starting.ask("/").text
    assert starting.ask("/alarms").status == 200


def test_it_says_what_it_waits_for_and_that_it_ends():
    shown = Shown(view(caught_up("t")), ending="It stops, as asked, after the present batch.")
    shown.metrics.health.checked("store", "no answer of store:9000")
    text = shown.page().text
    assert "It stops, as asked" in text
    assert "all is well" not in text.lower()
    assert "nothing is lost: store: no answer of store:9000" in text
    shown.seconds += 3600
    assert "the main loop has not turned for 3600 s" in shown.page().text


def test_topics_of_shards_that_it_stands_in_for_are_elsewhere_and_it_says_so():
    shown = Shown(view(caught_up("t")))
    shown.metrics.shards(1, 0)
    text = shown.page().text
    assert "also runs 1 shard of other processes" in text
    assert "all is well" not in text.lower(), "what it does not show may not be well"


def test_a_view_that_is_old_is_told():
    text = Shown(view(caught_up("t"), at=NOW - 5 * MINUTE)).page().text
    assert "What you see is 5 min old" in text
    assert "all is well" not in text.lower(), "nobody knows"


def test_only_this_machine_sees_it_without_a_token():
    token = "a-token-that-nobody-guesses"
    assert Shown(view()).ask(REMOTE_ADDR="10.0.0.9").status == 403
    behind = Shown(view(), access=PageAccess(token))
    assert behind.ask().status == 401
    assert behind.ask(HTTP_AUTHORIZATION=f"Bearer {token}", REMOTE_ADDR="10.0.0.9", HTTP_HOST="a:1").status == 200


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60) | st.sampled_from(
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7*7 }}", "\u202eevil", "\x1b[2J", "a&b"]
)


SHOWN = Shown()


@given(TEXTS, TEXTS)
def test_whatever_a_topic_is_called_and_a_broker_says_it_stays_text(name, reason):
    trouble = Trouble(reason, "slice-failed")
    SHOWN.view = view(opened("t", trouble=Trouble("plain", "slice-failed")))
    plain = SHOWN.page()
    SHOWN.view = view(replace(opened("t", trouble=trouble), topic=TopicName("public", "orders", name)))
    foreign = SHOWN.page()
    assert foreign.tags == plain.tags
    assert not any(attribute.startswith("on") for _, found in foreign.elements for attribute in found)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", SHOWN.ask().text)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 60 * MINUTE), st.booleans()), max_size=30))
def test_every_topic_stands_once_in_an_order_of_needs(given_topics):
    topics = [opened(f"t{n}", lag, age, FAILED if bad else None) for n, (lag, age, bad) in enumerate(given_topics)]
    ordered = Ordered.of(view(*topics))
    assert sorted(s.topic for s in ordered.topics) == sorted(s.topic for s in topics)
    keys = [(s.need(NOW), -s.lag_bytes) for s in ordered.topics]
    assert keys == sorted(keys)
    assert [s.need(NOW) is not Need.NONE for s in ordered.chosen("", NEEDS_YOU)] == [True] * ordered.summary.in_need
