"""`offloader gateway subscriptions`: what the archive's own subscriptions are, and what is done to them by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from offloader.cursors.copies import CopiedCursor
from offloader.cursors.copy_store import write_copy
from offloader.cursors.core.records import DELETED_ON, HANDED_OVER, FirstState
from offloader.cursors.durable import DurableCursor
from offloader.cursors.stored import delete_kept, kept_subscription
from offloader.errors import BrokerUnavailableError, OvertakenError, TopicNotFoundError
from offloader.gateway.topics.moving import BEGUN, HandOverState
from offloader.metadata.catalog import Catalogs
from offloader.metadata.layout import subscription_folder
from offloader.metadata.state import TopicCatalog
from offloader.model import Position, TopicName
from offloader.ports.subscriptions import SubscriptionLook
from offloader.testing.faulty import FaultyStore, StoreFault, StoreFaults
from tests.archive.bridges import hand_over
from tests.archive.support import TOPIC, gap, stream
from tests.archive.test_deleted import append, deleting
from tests.cli.test_copied_cursors import copy
from tests.cursors.marks import mark_delete_of

TOKENS = itertools.count()
GROUP = ("gateway", "subscriptions")


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


def test_the_catalog_of_a_topic_is_read_once_for_all_its_subscriptions(served, monkeypatch) -> None:
    loads, load = [], Catalogs.load

    def counted(catalogs: Catalogs, topic: TopicName) -> TopicCatalog:
        loads.append(topic)
        return load(catalogs, topic)

    monkeypatch.setattr(Catalogs, "load", counted)
    for number in range(3):
        opened(served, f"s{number}")
    assert len(served.json(*GROUP, str(TOPIC))) == 4
    assert loads == [TOPIC]


def test_what_brokers_have_instead_of_segments_is_backlog_and_what_is_deleted_is_none(served) -> None:
    hand_over(served.archive, 1)
    (job,) = served.json(*GROUP, str(TOPIC))
    assert job["backlog"] == 7 + 4, "it is read from brokers' objects"
    append(served.archive, replace(deleting(served.archive, 1), number=1))
    (job,) = served.json(*GROUP, str(TOPIC))
    assert job["backlog"] == 0, "with what follows it, what was handed over is not given any more"


def test_a_damaged_one_is_told_and_can_be_deleted(served) -> None:
    for key, _ in list(served.archive.store.list(subscription_folder(TOPIC, "job"))):
        served.archive.store.put(key, b"nothing")
    (job,) = served.json(*GROUP, str(TOPIC))
    assert job["note"].startswith("damaged: ")
    served.ok(*GROUP, "delete", str(TOPIC), "job", "--yes")
    assert served.json(*GROUP, str(TOPIC)) == []


def test_deleting_needs_a_yes(served) -> None:
    assert "would be deleted" in served.ok(*GROUP, "delete", str(TOPIC), "job")
    assert mark_delete_of(served.archive.store, TOPIC, "job") is not None
    served.ok(*GROUP, "delete", str(TOPIC), "job", "--yes")
    assert mark_delete_of(served.archive.store, TOPIC, "job") is None
    assert "no subscription" in served.run(*GROUP, "delete", str(TOPIC), "job", "--yes").output
    for command in ("delete", "unlock", "import"):  # what no terminal can write
        assert "it is not UTF-8" in served.run(*GROUP, command, str(TOPIC), "\udcff").output


def test_to_delete_one_reads_no_other(served) -> None:
    """There may be ten thousand."""
    opened(served, "another")
    faults = StoreFaults([StoreFault("read", key=lambda key: "/another/" in key, times=99)])
    served.archive.store = FaultyStore(served.archive.store, faults)
    served.ok(*GROUP, "delete", str(TOPIC), "job", "--yes")
    assert mark_delete_of(served.archive.store, TOPIC, "job") is None


class Brokers:
    """`Subscriptions`, as far as it is asked."""

    def __init__(self, there: SubscriptionLook | None = None, error: Exception | None = None) -> None:
        self.asked = 0
        self._there, self._error = there, error

    def look(self, _topic: TopicName, _subscription: str) -> SubscriptionLook | None:
        self.asked += 1
        if self._error is not None:
            raise self._error
        return self._there

    def close(self) -> None: ...


THERE = SubscriptionLook(1, (1, 9), (), 0, 0, 0)


def handed_over(line, brokers: Brokers, **properties: int) -> DurableCursor:
    line.dependencies = replace(line.dependencies, subscriptions=lambda _: brokers)
    cursor = opened(line, "job")
    cursor.describe((*cursor.properties, (BEGUN, 7), *properties.items()))
    cursor.flush()
    return cursor


def state(line) -> HandOverState | None:
    kept = kept_subscription(line.archive.store, TOPIC, "job")
    assert kept is not None
    assert kept.marker.mark_delete == Position(0, 1, 9), "it stands where it stood"
    return HandOverState.of(kept.marker.properties)


@pytest.mark.parametrize("brokers", [Brokers(), Brokers(error=TopicNotFoundError("it is gone"))])
def test_what_brokers_have_not_any_more_is_unlocked_with_a_yes(served, brokers: Brokers) -> None:
    cursor = handed_over(served, brokers, **{HANDED_OVER: 1_795_651_200_000})
    assert "was handed over to the brokers at 2026-11-26" in served.json(*GROUP, str(TOPIC))[0]["note"]
    assert "nothing is changed without --yes" in served.ok(*GROUP, "unlock", str(TOPIC), "job")
    assert state(served) is not None
    (said,) = served.json_lines(*GROUP, "unlock", str(TOPIC), "job", "--yes")
    assert (said["subscription"], said["unlocked"]) == ("job", True)
    assert state(served) is None
    assert "brokers" not in served.json(*GROUP, str(TOPIC))[0]["note"]
    assert brokers.asked == 2
    cursor.acknowledge_up_to(Position(0, 1, 11))
    with pytest.raises(OvertakenError):
        cursor.flush()
    assert "nothing to unlock" in served.error(*GROUP, "unlock", str(TOPIC), "job", "--yes")


def test_what_is_deleted_while_the_brokers_are_asked_is_not_brought_back(served) -> None:
    class Meanwhile(Brokers):
        def look(self, topic: TopicName, subscription: str) -> SubscriptionLook | None:
            delete_kept(served.archive.store, topic, subscription, lambda: f"cursor-{next(TOKENS)}")
            return super().look(topic, subscription)

    handed_over(served, Meanwhile(), **{HANDED_OVER: 1_795_651_200_000})
    assert "has deleted this subscription" in served.run(*GROUP, "unlock", str(TOPIC), "job", "--yes").output
    assert mark_delete_of(served.archive.store, TOPIC, "job") is None


def test_what_brokers_have_stays_locked(served) -> None:
    handed_over(served, Brokers(THERE), **{HANDED_OVER: 1_000})
    assert "delete it there first" in served.error(*GROUP, "unlock", str(TOPIC), "job", "--yes")
    assert state(served) is not None


def test_brokers_that_do_not_answer_say_nothing(served) -> None:
    handed_over(served, Brokers(error=BrokerUnavailableError("no answer")), **{HANDED_OVER: 1_000})
    assert "no answer" in served.run(*GROUP, "unlock", str(TOPIC), "job", "--yes").output
    assert state(served) is not None


def test_what_has_only_begun_is_left_to_the_gateway_unless_the_brokers_are_gone(served) -> None:
    brokers = Brokers()
    handed_over(served, brokers)
    assert "goes on with it" in served.error(*GROUP, "unlock", str(TOPIC), "job", "--yes")
    assert served.json(*GROUP, str(TOPIC))[0]["note"].endswith("is being handed over to the brokers")
    served.ok(*GROUP, "unlock", str(TOPIC), "job", "--yes", "--brokers-are-gone")
    assert state(served) is None
    assert brokers.asked == 0


def test_a_subscription_begins_with_a_copy_once(line) -> None:
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


def test_an_import_that_ended_between_partitions_is_made_again(line) -> None:
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
