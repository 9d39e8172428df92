"""A topic's schemas and partitions in a bucket, as the application copies them."""

from __future__ import annotations

from itertools import count
from typing import Any, cast

from offloader.cursors.facts import FactsCopier, TopicFacts
from offloader.metadata.layout import facts_folder, slot_name
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


class _Brokers:
    """They say what is to be copied."""

    def __init__(self, facts: TopicFacts) -> None:
        self.facts = facts

    def schema_version(self, _: TopicName) -> int | None:
        return self.facts.schemas[-1].version if self.facts.schemas else None

    def schemas(self, _: TopicName) -> object:
        return self.facts.schemas

    def partitions(self, _: TopicName) -> int | None:
        return self.facts.partitions


def write_facts(store: ObjectStore, facts: TopicFacts) -> str:
    """Write them at their time, behind what is there; returns their key."""
    copier = FactsCopier(store, cast("Any", _Brokers(facts)), map(str, count()).__next__)
    written = copier.take(facts.topic, facts.at, None, terminated=facts.terminated)
    return facts_key(facts.topic, written.at)


def facts_key(topic: TopicName, at: int) -> str:
    """Where the copy of this time stands."""
    return facts_folder(topic) + slot_name(at)
