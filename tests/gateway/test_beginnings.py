"""Where a durable subscription of the gateway begins, and what deletions do to it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pulsar
import pytest

from offloader.cursors.copies import CopiedCursor, CursorCopy, pieces_of
from offloader.cursors.copy_store import write_copy
from offloader.cursors.stored import kept_subscription
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention
from offloader.metadata.catalog import Catalogs
from offloader.model import AcknowledgedRange, PartlyAcknowledged, Position
from offloader.storage.memory import MemoryStore
from tests.archive.messages.encoder import Producer, Sent, batch
from tests.archive.support import APPLICATION, TOPIC, Archive, message
from tests.cursors.marks import mark_delete_of
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway
from tests.gateway.test_stock_client import EARLIEST, connected, nothing_more, received

FROM_COPY = "offloader.from-copy"

NAME = str(TOPIC)
SHARED = pulsar.ConsumerType.Shared
TOKENS = itertools.count()
DELETED_AT = 1_790_000_000_000
DELETED_ON = "offloader.deleted.2026-09-21"


def archive() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    for first in (0, 10, 20):
        made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(first, first + 10)])
    return made


def copied(made: Archive, mark: int, at: int) -> None:
    """All up to `mark`, 5 to 7 entries behind it, and of the last entry's batch all but the second message."""
    ranges = [AcknowledgedRange((10, mark + 4), (10, mark + 7))]
    pieces = pieces_of((10, mark), ranges, [PartlyAcknowledged(10, 30, (0b010,))], [(10, None)])
    copy = CursorCopy(TOPIC, 0, at, (CopiedCursor("job", (10, mark), pieces),))
    write_copy(made.store, copy, lambda: f"copy-{next(TOKENS)}", None)


def test_a_subscription_begins_with_the_copy_on_request_and_no_later_copy_touches_it() -> None:
    made = archive()
    made.add([Stored(10, 30, batch(Producer(), [Sent(b"x"), Sent(b"y"), Sent(b"z")]).data)])
    copied(made, 3, at=1_000)
    copied(made, 20, at=2_000)
    wanted = {FROM_COPY: "1970-01-01T00:00:01.500Z"}
    left = [b"m%d" % n for n in range(4, 30) if n not in (8, 9, 10)] + [b"y"]
    with durable_gateway(made.store, durableAcks=True) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "job", consumer_type=SHARED, properties=wanted, batch_index_ack_enabled=True)
        assert received(consumer, len(left)) == left
        assert nothing_more(consumer)
        client.close()
    copied(made, 29, at=3_000)
    with durable_gateway(made.store) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "job", consumer_type=SHARED, properties={FROM_COPY: "newest"})
        assert received(consumer, len(left) - 1) == left[:-1], "it goes its own way"
        client.close()


def test_without_the_request_a_copy_of_the_same_name_is_nothing_to_it() -> None:
    made = archive()
    copied(made, 20, at=1_000)
    with durable_gateway(made.store) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "job", initial_position=EARLIEST)
        assert received(consumer, 30) == [b"m%d" % n for n in range(30)]
        client.close()


@pytest.mark.parametrize("wanted", ["newest", "2026-01-01T00:00:00Z", "soon"])
def test_what_is_asked_for_and_not_there_is_refused(wanted: str) -> None:
    made = archive()
    with durable_gateway(made.store) as url:
        client = connected(url)
        with pytest.raises(pulsar.PulsarException):
            client.subscribe(NAME, "job", properties={FROM_COPY: wanted})
        client.close()
    assert kept_subscription(made.store, TOPIC, "job") is None


def delete(made: Archive, policy: RetentionPolicy) -> str:
    catalogs = Catalogs(made.store, APPLICATION)
    deletion = ArchiveDeletion(
        made.store, catalogs, catalogs.append, lambda: None, lambda: DELETED_AT, "memory", APPLICATION
    )
    retention = ArchiveRetention(deletion, lambda _: policy, lambda _: None, grace_ms=0)
    made.store.backing.clock_ms = lambda: DELETED_AT
    return f"{retention.visit(TOPIC, noted=False)} {retention.visit(TOPIC)}"


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def counted(made: Archive) -> dict[str, int]:
    found = kept_subscription(made.store, TOPIC, "job")
    assert found is not None
    return dict(found.marker.properties)


ALL_BUT_THE_NEWEST = RetentionPolicy(minutes=0, megabytes=0, keep_unacknowledged=False)


def test_what_is_deleted_unacknowledged_counts_as_acknowledged_with_date_and_count() -> None:
    made = archive()
    with durable_gateway(made.store, durableAcks=True) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "job", consumer_type=SHARED, initial_position=EARLIEST)
        messages = [consumer.receive(20_000) for _ in range(30)]
        for number in (0, 1, 2, 5, 12, 25):
            consumer.acknowledge(messages[number])
        consumer.close()
        client.close()
    assert "is done" in delete(made, ALL_BUT_THE_NEWEST)
    with durable_gateway(made.store, durableAcks=True) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "job", consumer_type=SHARED)
        assert received(consumer, 9) == [b"m%d" % n for n in range(20, 30) if n != 25]
        assert nothing_more(consumer)
        client.close()
    assert counted(made) == {DELETED_ON: 15}
    with durable_gateway(made.store) as url:
        client = connected(url)
        client.subscribe(NAME, "job", consumer_type=SHARED)
        client.close()
    assert counted(made) == {DELETED_ON: 15}, "counted once"


def test_what_is_deleted_while_it_is_served_is_counted_too() -> None:
    made = archive()
    with durable_gateway(made.store, durableAcks=True, flushInterval="100ms") as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "job", consumer_type=SHARED, initial_position=EARLIEST)
        messages = [consumer.receive(20_000) for _ in range(30)]
        for number in range(18):
            consumer.acknowledge(messages[number])
        wait_for(lambda: mark_delete_of(made.store, TOPIC, "job") == Position(0, 10, 17))
        delete(made, ALL_BUT_THE_NEWEST)
        made.add([Stored(10, 30, message("late"))])
        assert consumer.receive(20_000).data() == b"late"
        client.close()
    assert counted(made) == {DELETED_ON: 2}
