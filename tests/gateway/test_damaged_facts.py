"""A topic whose schemas and partition count cannot be read is served without them."""

from __future__ import annotations

import pytest

from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.errors import DamagedRecordError
from offloader.gateway.application import StoredTopicsOfArchive
from offloader.gateway.entries.missing import OnMissing
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.fakes.topic_facts import facts_key
from tests.format.support import Stored


def test_a_damaged_copy_of_what_belongs_to_a_topic_keeps_nobody_from_its_entries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(5)])
    made.store.put(facts_key(TOPIC, 7), b"no record")
    topics = StoredTopicsOfArchive(OpenArchive(Stores.of(made.store)), OnMissing.FAIL)
    entries = topics.open(TOPIC)
    for _ in range(3):
        end = entries.end()
        assert (end.last, end.terminated) == ((10, 4), False)
        assert topics.partitions(TOPIC) is None
    assert [record.__dict__["see"] for record in caplog.records] == ["gateway-facts"]
    with pytest.raises(DamagedRecordError):
        topics.schemas(TOPIC)
