"""Looks at topics that may be gone cost the driver's thread little, however many they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from offloader.model import TopicName
from offloader.offload.core.evidence import Look
from offloader.offload.driver import inquiries
from offloader.offload.driver.inquiries import inquire, pursue
from offloader.offload.driver.work import WorkKind
from tests.offload.simulation import Simulation

WITNESSES = 3
LOOK_EVERY_MS = 10_000

NAMES = [TopicName.parse(f"public/default/t{number}") for number in range(8)]


def test_witnesses_are_found_once_for_all_topics_and_change_from_look_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Simulation(1, roll="10m")
    for name in NAMES:
        sim.cluster.create(name)
    sim.rounds(6)
    missing, there = NAMES[5:], NAMES[:5]
    for name in missing:
        inquire(sim.registry.topics[name])
    posted: Counter[TopicName] = Counter()
    asked: dict[TopicName, set[TopicName]] = {name: set() for name in missing}
    found = 0
    real = inquiries._witnesses

    def witnesses(topics):
        nonlocal found
        found += 1
        return real(topics)

    def post(kind, key, call, then):
        if kind is WorkKind.SUBSCRIBE:
            return True
        assert kind is WorkKind.INQUIRE
        posted[key] += 1
        assert len(call.args[2]) == WITNESSES
        asked[key] |= {head.topic for head in call.args[2]}
        topic = sim.registry.topics[key]
        assert topic.inquiry is not None
        topic.inquiry = replace(topic.inquiry, looks=(*topic.inquiry.looks, Look(0)))
        return True

    monkeypatch.setattr(inquiries, "_witnesses", witnesses)
    monkeypatch.setattr(sim.context.work, "post", post)
    for number in range(4):
        pursue(sim.context, sim.registry.topics.values(), sim.registry.topics)
        pursue(sim.context, sim.registry.topics.values(), sim.registry.topics)  # nothing is due
        assert found == number + 1
        sim.clock.now += LOOK_EVERY_MS
    assert posted == dict.fromkeys(missing, 4)
    assert all(others == set(there) for others in asked.values())
    monkeypatch.setattr(sim.context.work, "has", lambda kind, key: True)
    pursue(sim.context, sim.registry.topics.values(), sim.registry.topics)
    assert posted.total() == 12, "the former looks are still under way"


FIRST, LATER = NAMES[:2]


def with_two_topics() -> Simulation:
    sim = Simulation(1, roll="10m")
    for name in (FIRST, LATER):
        sim.cluster.create(name)
    sim.rounds(4)
    claimed = [sim.registry.topics[name].catalog.claimed_at for name in (FIRST, LATER)]
    assert claimed == sorted(set(claimed))
    return sim


@pytest.mark.parametrize("deleted", [FIRST, LATER])
def test_a_quiet_topic_has_a_witness_also_where_it_was_claimed_first(deleted: TopicName) -> None:
    sim = with_two_topics()
    sim.cluster.delete(deleted)
    sim.until_believed()
    assert set(sim.registry.topics) == {FIRST, LATER} - {deleted}
    sim.close()


def test_a_list_is_read_once_more_for_the_topic_that_was_claimed_first_alone() -> None:
    sim = with_two_topics()
    listed = {name: topic.observed.listed_at for name, topic in sim.registry.topics.items()}
    assert (listed[FIRST] > 0, listed[LATER]) == (True, 0)
    sim.rounds(20, step_ms=60_000)
    assert {name: topic.observed.listed_at for name, topic in sim.registry.topics.items()} == listed
    sim.close()


def test_what_showed_that_a_topic_was_there_counts_also_where_a_pause_drops_it() -> None:
    sim = with_two_topics()
    sim.cluster.produce(FIRST, b"entry")
    for _ in range(4):
        sim.clock.now += 1_000
        sim.round()
    assert sim.driver.state(FIRST).open is not None
    sim.cluster.delete(FIRST)
    sim.cluster.namespace("public/default").properties["offloader.enabled"] = "false"
    sim.kill()
    sim.rounds(3)
    assert sim.registry.topics[FIRST].in_question
    assert not sim.driver.state(FIRST).unfinished
    sim.until_believed()
    assert set(sim.registry.topics) == {LATER}
    sim.close()
