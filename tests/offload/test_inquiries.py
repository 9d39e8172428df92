"""Looks at topics that may be gone cost the driver's thread little, however many they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from offloader.model import TopicName
from offloader.offload.driver import inquiries
from offloader.offload.driver.admin_queries import WITNESSES
from offloader.offload.driver.inquiries import LOOK_EVERY_MS, inquire, pursue
from offloader.offload.driver.work import WorkKind
from tests.offload.simulation import Simulation

NAMES = [TopicName.parse(f"public/default/t{number}") for number in range(8)]


def test_witnesses_are_found_once_for_all_topics_and_change_from_look_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Simulation(1, roll="10m")
    for name in NAMES:
        sim.cluster.create(name)
    sim.rounds(6)
    missing, there = NAMES[:3], NAMES[3:]
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
        assert kind is WorkKind.INQUIRE
        posted[key] += 1
        assert len(call.args[2]) == WITNESSES
        asked[key] |= {head.topic for head in call.args[2]}
        topic = sim.registry.topics[key]
        topic.inquiry = replace(topic.inquiry, looks=(*topic.inquiry.looks, inquiries.Look(0)))
        return True

    monkeypatch.setattr(inquiries, "_witnesses", witnesses)
    monkeypatch.setattr(sim.context.work, "post", post)
    for number in range(4):
        pursue(sim.context, sim.registry.topics.values())
        pursue(sim.context, sim.registry.topics.values())  # nothing is due
        assert found == number + 1
        sim.clock.now += LOOK_EVERY_MS
    assert posted == dict.fromkeys(missing, 4)
    assert all(others == set(there) for others in asked.values())
    monkeypatch.setattr(sim.context.work, "has", lambda kind, key: True)
    pursue(sim.context, sim.registry.topics.values())
    assert posted.total() == 12, "the former looks are still under way"
