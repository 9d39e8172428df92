"""The real target against a scripted broker: what it asks before it produces, and what it waits for after."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from offloader.archive.messages.envelope import parse_envelope
from offloader.errors import BrokerUnavailableError, FatalError, IntegrityError
from offloader.model import Gap, GapKind, TopicName
from offloader.operations.restore.provenance import Provenance, outgoing
from offloader.operations.restore.tail import Tail
from offloader.operations.restore.target import PulsarTarget
from offloader.ports.entry_source import RawEntry
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.settings import PulsarSettings
from tests.operations.restore.support import FOREIGN, ORIGIN, archived, at
from tests.pulsar.fake_broker import FakeBroker
from tests.pulsar.test_producer import PRODUCER, SEND, attached, receipt

PART = TopicName.parse("public/default/again-partition-1")


def restored(number: int):
    return outgoing(parse_envelope(archived(at(1, number)).data), Provenance(ORIGIN, at(1, number), number))


class Rest:
    """What the broker says over HTTP. `pending`: how many writes it tells of, one answer after the other."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.pending = iter(())
        self.asked: list[str] = []
        self.policies: dict[str, Any] = {"retention": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}

    def get(self, path: str, **_: str) -> Any:
        self.asked.append(path)
        kind = path.rsplit("/", 1)[1]
        if kind == "internalStats":
            return {
                "numberOfEntries": len(self.entries),
                "lastConfirmedEntry": f"4:{len(self.entries) - 1}",
                "pendingAddEntriesCount": next(self.pending, 0),
                "state": "LedgerOpened",
                "compactedLedger": {"ledgerId": -1},
            }
        return {"publishers": []} if kind == "stats" else self.policies.get(kind)


class Admin:
    def __init__(self) -> None:
        self.rest = Rest()

    def namespace_policies(self, namespace: str) -> dict[str, object]:
        return {}


class Source:
    """Delivers the last entry, unless it is hidden, or the broker `silent`."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self.hidden = self.silent = False

    def explain(self, topic, missing, *, limit):
        if self.hidden:
            return (Gap(missing.ledger, missing.first, missing.after, kind=GapKind.MARKER),), None
        return (), missing.first

    def open(self, topic, ledger, entry, *, max_bytes):
        self._last = RawEntry(ledger, entry, self._rest.entries[entry])
        return self

    def read(self, timeout: float) -> list[RawEntry]:
        return [] if self.silent else [self._last]

    def close(self) -> None:
        pass


class Place:
    """A target and everything around it."""

    def __init__(self, **settings: Any) -> None:
        self.broker = FakeBroker()
        self.broker.on(PRODUCER, attached)
        self.broker.on(SEND, receipt)
        self.admin = Admin()
        self.source = Source(self.rest)
        known = PulsarSettings(service_url=self.broker.url, connect_timeout=60, operation_timeout=60)
        self.pool = ConnectionPool(dataclasses.replace(known, **settings))
        tokens = (f"token-{n}" for n in itertools.count())
        self.target = PulsarTarget(
            PART,
            ORIGIN,
            self.admin,
            self.source,
            TopicLookup(self.pool),
            lambda: next(tokens),
        )

    @property
    def rest(self) -> Rest:
        return self.admin.rest

    def close(self) -> None:
        self.target.close()
        self.pool.close()
        self.broker.close()


@pytest.fixture
def place():
    place = Place()
    yield place
    place.close()


def test_it_waits_until_nothing_of_an_earlier_producer_is_on_its_way(place: Place) -> None:
    place.rest.entries = [restored(1).data]

    def written_late():
        yield 0  # before it attaches
        yield 2
        yield 1
        place.rest.entries.append(restored(2).data)
        yield 0

    place.rest.pending = written_late()
    assert place.target.attach() == Tail(2, at(1, 2))


def test_writes_that_never_end_are_given_up() -> None:
    place = Place(operation_timeout=0.3)
    place.rest.pending = itertools.repeat(1)
    with pytest.raises(BrokerUnavailableError, match="still being written"):
        place.target.attach()
    place.close()


def test_nobody_is_fenced_out_of_a_topic_that_is_refused(place: Place) -> None:
    place.rest.entries = [FOREIGN]
    with pytest.raises(FatalError, match="was not restored"):
        place.target.attach()
    assert place.broker.received(PRODUCER) == []


def test_each_producer_has_a_name_of_its_own_and_the_epoch_of_the_one_before(place: Place) -> None:
    place.target.attach()
    place.target.attach()
    first, second = (c.producer for c in place.broker.received(PRODUCER))
    assert (first.producer_name, second.producer_name) == ("offloader-restore-token-0", "offloader-restore-token-1")
    assert not first.HasField("topic_epoch")
    assert second.topic_epoch == 7


def test_an_epoch_is_not_brought_again_when_the_answer_was_lost(place: Place) -> None:
    place.target.attach()
    place.broker.on(PRODUCER, lambda peer, c: peer.close())
    with pytest.raises(BrokerUnavailableError):
        place.target.attach()
    place.broker.on(PRODUCER, attached)
    place.target.attach()
    assert [c.producer.HasField("topic_epoch") for c in place.broker.received(PRODUCER)] == [False, True, False]


def test_entries_go_out_and_receipts_come_back(place: Place) -> None:
    place.target.attach()
    for number in (1, 2):
        place.target.send(restored(number))
    numbers: list[int] = []
    while len(numbers) < 2:
        numbers += place.target.receipts(5)
    assert numbers == [1, 2]


def test_more_entries_than_were_restored_are_noticed_only_where_nothing_is_written(place: Place) -> None:
    place.rest.entries = [restored(1).data, restored(1).data]
    assert place.target.check() == Tail(1, at(1, 1))
    with pytest.raises(IntegrityError, match="holds 2 entries"):
        place.target.attach()


def test_a_last_entry_that_is_not_delivered_is_refused(place: Place) -> None:
    place.rest.entries, place.source.hidden = [FOREIGN], True
    with pytest.raises(FatalError, match="is not a message"):
        place.target.check()


def test_a_broker_that_says_nothing_is_asked_again(place: Place) -> None:
    place.rest.entries, place.source.silent = [restored(1).data], True
    with pytest.raises(BrokerUnavailableError, match="its last entry 4:0 did not come"):
        place.target.check()


def test_policies_are_asked_of_the_partitioned_topic(place: Place) -> None:
    """Brokers answer 412 where they are asked of a partition."""
    place.rest.policies["retention"] = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    with pytest.raises(FatalError, match=r"set-retention persistent://public/default/again --time -1 --size -1"):
        place.target.check()
    assert "persistent/public/default/again/retention" in place.rest.asked


def test_an_entry_says_where_it_was(place: Place) -> None:
    place.rest.entries = [restored(1).data, restored(2).data, FOREIGN]
    assert place.target.provenance(8, 1).number == 2
    with pytest.raises(IntegrityError, match="8:2 was not restored from"):
        place.target.provenance(8, 2)
    place.source.hidden = True
    with pytest.raises(IntegrityError, match="8:0 was not restored from"):
        place.target.provenance(8, 0)
