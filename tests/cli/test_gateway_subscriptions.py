"""`offloader gateway subscriptions`: what the archive's own subscriptions are, and what is done to them by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from offloader.cursors.copies import CopiedCursor
from offloader.cursors.copy_store import write_copy
from offloader.cursors.core.records import DELETED_ON, FirstState
from offloader.cursors.durable import DurableCursor
from offloader.cursors.stored import kept_subscription
from offloader.metadata.catalog import Catalogs
from offloader.metadata.layout import subscription_folder
from offloader.metadata.state import TopicCatalog
from offloader.model import Position, TopicName
from tests.archive.support import TOPIC, gap, stream
from tests.archive.test_deleted import append, deleting
from tests.cli.test_copied_cursors import copy
from tests.cursors.marks import mark_delete_of
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults

TOKENS = itertools.count()
GROUP = ("gateway", "subscriptions")
DURABLE = "gateway: {durableSubscriptions: true}\n"


def opened(line, name: str) -> DurableCursor:
    folder = subscription_folder(TOPIC, name)
    return DurableCursor.open(
        line.archive.store, folder, lambda: FirstState(Position(0, 1, -1)), lambda: f"cursor-{next(TOKENS)}"
    )


@pytest.fixture
def served(line):
    line.root()
    line.archive.claim(1)
    line.archive.add(stream(1, 0, 17) + stream(1, 19, 19), [gap(1, 18, 18)])
    line.archive.add(stream(2, 0, 4), closed={1: 19})
    cursor = opened(line, "job")
    cursor.acknowledge_up_to(Position(0, 1, 9))
    cursor.acknowledge((0, 1), 12, 13)
    cursor.acknowledge((0, 2), 2, 2)
    cursor.acknowledge_part(Position(0, 1, 15), 10, 0x3E0)
    cursor.count_property(f"{DELETED_ON}2026-11-26", 7)
    cursor.flush()
    return line


def test_each_subscription_is_shown_with_its_backlog(served) -> None:
    opened(served, "at the begin")
    new, job = served.json(*GROUP, str(TOPIC))
    assert (job["subscription"], job["mark delete"], job["opened"]) == ("job", "1:9", 1)
    assert (job["ranges"], job["acknowledged"], job["batches"]) == (2, 3, 1)
    # 10 entries of ledger 1 behind it, one of them a gap and two acknowledged; 5 of ledger 2, one acknowledged
    assert job["backlog"] == 7 + 4
    assert job["note"] == "7 entries were deleted on 2026-11-26 before they were acknowledged"
    assert job["written"] > 0
    assert (new["subscription"], new["mark delete"], new["backlog"]) == ("at the begin", "1:-1", 24)
    assert served.json(*GROUP, "list") == [new, job], "of all topics"
    assert "job" in served.ok(*GROUP, str(TOPIC))


def test_the_catalog_of_a_topic_is_read_once_for_all_its_subscriptions(served, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, load = [], Catalogs.load

    def counted(catalogs: Catalogs, topic: TopicName) -> TopicCatalog:
        loads.append(topic)
        return load(catalogs, topic)

    monkeypatch.setattr(Catalogs, "load", counted)
    for number in range(3):
        opened(served, f"s{number}")
    assert len(served.json(*GROUP, str(TOPIC))) == 4
    assert loads == [TOPIC]


def test_what_is_about_to_be_deleted_is_no_backlog(served) -> None:
    (job,) = served.json(*GROUP, str(TOPIC))
    assert job["backlog"] == 7 + 4
    append(served.archive, deleting(served.archive, 1))
    (job,) = served.json(*GROUP, str(TOPIC))
    assert job["backlog"] == 4


def test_a_damaged_one_is_told_and_can_be_deleted(served) -> None:
    for key, _ in list(served.archive.store.list(subscription_folder(TOPIC, "job"))):
        served.archive.store.put(key, b"nothing")
    (job,) = served.json(*GROUP, str(TOPIC))
    assert job["note"].startswith("it cannot be used: ")
    served.ok(*GROUP, "delete", str(TOPIC), "job", "--yes")
    assert served.json(*GROUP, str(TOPIC)) == []


def test_one_that_was_handed_over_to_brokers_is_told_and_can_be_deleted(served) -> None:
    cursor = opened(served, "job")
    cursor.count_property("offloader.hand-over", 7)
    cursor.flush()
    (job,) = served.json(*GROUP, str(TOPIC))
    assert f"{TOPIC}: subscription job was handed over to brokers, and 1db0db3f is the last commit" in job["note"]
    served.ok(*GROUP, "delete", str(TOPIC), "job", "--yes")
    assert served.json(*GROUP, str(TOPIC)) == []


def test_deleting_needs_a_yes(served) -> None:
    assert "would be deleted" in served.ok(*GROUP, "delete", str(TOPIC), "job")
    assert mark_delete_of(served.archive.store, TOPIC, "job") is not None
    served.ok(*GROUP, "delete", str(TOPIC), "job", "--yes")
    assert mark_delete_of(served.archive.store, TOPIC, "job") is None
    assert "no subscription" in served.run(*GROUP, "delete", str(TOPIC), "job", "--yes").output
    for command in ("delete", "import"):  # what no terminal can write
        assert "it is not UTF-8" in served.run(*GROUP, command, str(TOPIC), "\udcff").output


def test_to_delete_one_reads_no_other(served) -> None:
    """There may be ten thousand."""
    opened(served, "another")
    faults = StoreFaults([StoreFault("read", key=lambda key: "/another/" in key, times=99)])
    served.archive.store = FaultyStore(served.archive.store, faults)
    served.ok(*GROUP, "delete", str(TOPIC), "job", "--yes")
    assert mark_delete_of(served.archive.store, TOPIC, "job") is None


def test_a_subscription_begins_with_a_copy_once(line) -> None:
    line.config += DURABLE
    store = line.root().archive.store
    line.archive.claim(1)
    line.archive.add(stream(1, 0, 17))
    for one in (copy(1_000, (1, 3)), copy(2_000, (1, 9))):
        write_copy(store, one, lambda: f"copy-{next(TOKENS)}", None)
    line.ok(*GROUP, "import", str(TOPIC), "job", "--at", "1500")
    assert mark_delete_of(store, TOPIC, "job") == Position(0, 1, 3)
    assert "goes its own way" in line.run(*GROUP, "import", str(TOPIC), "job").output
    line.ok(*GROUP, "import", str(TOPIC), "other")
    assert [each["mark delete"] for each in line.json(*GROUP, str(TOPIC))] == ["1:3", "2:9"]
    assert "no copy of a subscription nobody" in line.run(*GROUP, "import", str(TOPIC), "nobody").output
    assert "no copy of 1970" in line.run(*GROUP, "import", str(TOPIC), "late", "--at", "1").output


def test_nothing_is_imported_where_no_gateway_would_serve_it(line) -> None:
    store = line.root().archive.store
    write_copy(store, copy(1_000, (1, 3)), lambda: f"copy-{next(TOKENS)}", None)
    assert "gateway.durableSubscriptions is false" in line.error(*GROUP, "import", str(TOPIC), "job")
    assert mark_delete_of(store, TOPIC, "job") is None


def test_an_import_that_ended_between_partitions_is_made_again(line) -> None:
    line.config += DURABLE
    store = line.root().archive.store
    parts = [TopicName(TOPIC.tenant, TOPIC.namespace_part, f"{TOPIC.name}-partition-{number}") for number in range(2)]
    first, second = (replace(copy(1_000, (1, 3)), topic=part) for part in parts)
    write_copy(store, first, lambda: "first", None)
    write_copy(store, replace(second, cursors=()), lambda: "none", None)
    assert "no copy of a subscription job" in line.run(*GROUP, "import", str(TOPIC), "job").output
    assert mark_delete_of(store, parts[0], "job") is None, "nothing is begun where one of them cannot be"
    damaged = replace(second, at=2_000, cursors=(CopiedCursor("job", (1, 3), {1: b"junk"}),))
    write_copy(store, damaged, lambda: "damaged", None)
    assert "subscription job: " in line.error(*GROUP, "import", str(TOPIC), "job")
    assert mark_delete_of(store, parts[0], "job") is None, "nor where the copy of one of them is damaged"
    write_copy(store, replace(second, at=3_000), lambda: "second", None)
    line.ok(*GROUP, "import", str(parts[0]), "job")
    line.ok(*GROUP, "import", str(TOPIC), "job")
    assert [mark_delete_of(store, part, "job") for part in parts] == [Position(0, 1, 3)] * 2


def test_a_name_can_be_given_as_it_is_printed(served) -> None:
    opened(served, "of\njoe")
    assert r"of\njoe" in served.ok(*GROUP, str(TOPIC))
    served.ok(*GROUP, "delete", str(TOPIC), r"of\njoe", "--yes")
    assert kept_subscription(served.archive.store, TOPIC, "of\njoe") is None
