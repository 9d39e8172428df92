"""What the archive has beside its topics is read and continued, by those who do so in production."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from offloader.archive.archive import rescued_ledger
from offloader.archive.items import ArchivedEntry
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.topic import ArchivedTopic
from offloader.cursors.copy_store import read_copy
from offloader.cursors.durable import DurableCursor
from offloader.cursors.facts import read_facts
from offloader.cursors.stored import kept_subscription
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.protocol.answers import Address
from offloader.gateway.values import LookUpAgainError
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import subscription_record_name
from offloader.lifecycle.deletion.system_topic.opening import open_mark
from offloader.lifecycle.topics.cursors.former import pending_former
from offloader.metadata.former_offload import FormerOffloads
from offloader.metadata.heartbeats import Heartbeats
from offloader.metadata.layout import subscription_folder
from offloader.metadata.rescue_log import Rescues
from offloader.model import Position
from tests.lifecycle.rescue.support import KEPT, messages
from tests.lifecycle.topics.removing import SUB, TOPIC
from tests.release.beside import FORGOTTEN_LEDGER, FORMER, MARKED, SCHEMA, Beside, own
from tests.release.golden import CLUSTER, FIRST, LONG, SECOND, Golden


def never() -> str:
    raise AssertionError("nothing is written")


def check_read(golden: Golden) -> None:
    """All of it, as it was written."""
    store = golden.store
    copy = read_copy(store, LONG)
    assert copy is not None
    (cursor,) = copy.cursors
    assert (cursor.name, cursor.mark_delete[1], cursor.replicated) == ("job", 3, True)
    assert [list(acks.runs()) for acks in cursor.acks().values()] == [[(5, 6)]]
    facts = read_facts(store, LONG)
    assert facts is not None
    assert facts.schemas == (SCHEMA,)
    former = FormerOffloads(store, never).newest("public/default")
    assert former is not None
    assert (former.size, former.seconds, former.over) == (1 << 20, 60, False)
    queue = DeletionQueue(store, CLUSTER, never)
    switch = queue.switch()
    assert switch is not None
    assert switch.on
    found = {stored.record.name: stored.record for stored in queue.readable()}
    removal = found.pop(subscription_record_name(str(TOPIC), SUB))
    assert removal.subscription is not None
    assert removal.subscription.look.mark_delete == (1, 4)
    assert found == {record.name: replace(record, switch=switch.number) for record in MARKED}
    assert [(one.subscription, one.state) for one in pending_former(store, CLUSTER)] == [(FORMER, "marked")]
    assert Rescues(store, CLUSTER).rescued(FORGOTTEN_LEDGER) is None
    rescued = ArchivedTopic(Stores.of(store), TopicRecords(rescued_ledger(store, KEPT)))
    assert [item.data for item in rescued.items() if isinstance(item, ArchivedEntry)] == [
        data for number, data in enumerate(messages(4)) if number != 2
    ]
    signs = Heartbeats(store, FIRST.application).all()
    assert {index: sign.heartbeat and sign.heartbeat.beat for index, sign in signs.items()} == {0: 3, 1: 3}
    assert all(sign.heartbeat and sign.heartbeat.deals_as(SECOND) for sign in signs.values())


def test_it_is_read_as_it_was_written(golden: Golden) -> None:
    check_read(golden)


def test_whoever_writes_it_goes_on_with_what_is_there(golden: Golden) -> None:
    """The same is done once more: nothing is lost of what was there."""
    secret = open_mark(golden.store, CLUSTER, never, lambda: b"")
    sim = golden.continued()
    Beside(sim, LONG).write()
    check_read(golden)
    assert open_mark(golden.store, CLUSTER, never, lambda: b"") == secret
    sim.close()


def test_a_subscription_is_continued_by_another_gateway_once_its_owner_is_gone(golden: Golden) -> None:
    store, sim = golden.store, golden.continued()
    kept = kept_subscription(store, LONG, "reader")
    assert kept is not None
    mark = kept.marker.mark_delete
    assert mark.entry == 1
    claims = ClaimLog(store, sim.uuid)
    former = claims.newest(LONG)
    assert former is not None
    assert (former.gateway, former.number, former.address) == ("two", 1, Address("pulsar://two:6650"))
    with pytest.raises(LookUpAgainError, match="is served at pulsar://two:6650"):
        asyncio.run(own(store, sim, LONG, "three", living=True))
    asyncio.run(own(store, sim, LONG, "three"))
    assert ClaimLog(store, sim.uuid).newest_of_all() == {LONG: former.number + 1}
    folder = subscription_folder(LONG, "reader")
    cursor = DurableCursor.open(store, folder, None, sim.uuid)
    acknowledged = [n for n in range(10) if cursor.is_acknowledged(Position(0, mark.ledger, n))]
    assert acknowledged == [0, 1, 4, 5, 6]
    cursor.acknowledge((0, mark.ledger), 2, 3)
    cursor.acknowledge_up_to(Position(0, mark.ledger, 6))
    cursor.flush()
    again = kept_subscription(store, LONG, "reader")
    assert again is not None
    assert again.marker.mark_delete == Position(0, mark.ledger, 6)
    sim.close()
