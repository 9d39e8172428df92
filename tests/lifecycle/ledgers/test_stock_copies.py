"""Copies of Pulsar's own offloader, read back: only a whole one makes a ledger certain, through both phases."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from uuid import UUID

import pytest

from offloader.errors import StoreUnavailableError
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.deletion.quarantine import Quarantine
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionProof, DeletionState, LedgerType, ledger_record_name
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.ledgers.copies import CopiedLedger
from offloader.lifecycle.ledgers.stock_copies import StockCopies, is_whole, stock_copies
from offloader.metadata.stock_keys import data_key, index_key
from offloader.state.managed_ledger import OffloadContext
from offloader.state.names import topic_of
from offloader.storage.memory import MemoryStore
from offloader.storage.settings import StoreSettings
from tests.archive.ledgers.support import messages, objects
from tests.lifecycle.deletion.cluster import DAY
from tests.lifecycle.deletion.test_service import WIDE, Told

from .world import World
from .written import Written

NAME = "t/ns/persistent/a"
COPY = str(UUID(int=(1 << 64) + 2**64 - 2))
ENTRIES = messages(7, 5)
LEDGER = CopiedLedger(7, NAME, OffloadContext(COPY, True, True), len(ENTRIES) - 1, sum(map(len, ENTRIES)))
DATA, INDEX = objects(7, ENTRIES, topic_of(NAME))


def bucket(data: bytes | None = DATA, index: bytes | None = INDEX, ledger: int = 7) -> MemoryStore:
    store = MemoryStore()
    for key, value in ((data_key(COPY, ledger), data), (index_key(COPY, ledger), index)):
        if value is not None:
            store.put(key, value)
    return store


def test_a_copy_that_reads_back_is_whole():
    assert is_whole(bucket(), LEDGER) is True


@pytest.mark.parametrize(
    "store",
    [
        bucket(data=None),
        bucket(index=None),
        bucket(data=DATA[:-1]),
        bucket(data=DATA + b"x"),
        bucket(index=INDEX[:-1]),
        bucket(*objects(7, ENTRIES[:-1], topic_of(NAME))),
        bucket(*objects(7, ENTRIES, topic_of("t/ns/persistent/other"))),
        bucket(*objects(7, [*ENTRIES, b"another"], topic_of(NAME))),
    ],
)
def test_one_that_lacks_anything_is_not(store):
    assert is_whole(store, LEDGER) is False


def test_every_byte_of_it_counts():
    at = DATA.index(ENTRIES[3]) + len(ENTRIES[3]) - 1
    assert is_whole(bucket(DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :]), LEDGER) is False


def test_a_bucket_that_has_nothing_of_it_says_nothing():
    assert is_whole(MemoryStore(), LEDGER) is None
    assert StockCopies(bucket)([LEDGER._replace(copy=OffloadContext("", True, True))]) == {}
    assert StockCopies(bucket)([LEDGER._replace(copy=OffloadContext(COPY, False, True))]) == {}
    assert stock_copies("", StoreSettings("memory://"))([LEDGER]) == {}


def test_what_cannot_be_read_now_is_left_out_and_the_others_are_told():
    class Away(MemoryStore):
        def read(self, key, offset=0, length=None):
            if "-8" in key:
                raise StoreUnavailableError("away")
            return super().read(key, offset, length)

    store = Away()
    for key, value in ((data_key(COPY, 7), DATA), (index_key(COPY, 7), INDEX)):
        store.put(key, value)
    other = LEDGER._replace(ledger=8)
    store.put(index_key(COPY, 8), INDEX)
    assert StockCopies(lambda: store)([LEDGER, other]) == {7: True}


class Ground:
    """A ledger that its list says was deleted, and that is still there; its copy in a bucket."""

    def __init__(self) -> None:
        world = World(Random(1))
        world.topic(NAME)
        self.ledger = world.roll(NAME, 5)
        world.roll(NAME, 5)
        info = world.info(NAME)
        listed = next(one for one in info.ledgerInfo if one.ledgerId == self.ledger)
        entries = messages(self.ledger, 5, 0)
        metadata = world.ledgers[self.ledger]
        assert metadata is not None
        world.ledgers[self.ledger] = replace(metadata, length=sum(map(len, entries)))
        context = listed.offloadContext
        context.uidMsb, context.uidLsb, context.complete, context.bookkeeperDeleted = 1, -2, True, True
        world.put_list(NAME, info)
        self.written = Written(world)
        self.bucket = bucket(*objects(self.ledger, entries, topic_of(NAME)), ledger=self.ledger)
        numbers = count()
        self.queue = DeletionQueue(MemoryStore(), "main", lambda: f"t{next(numbers)}")
        self.queue.set_switch(on=True, now=self.now_ms())
        self.later()

    def now_ms(self) -> int:
        return int(self.written.bookkeeper.network.now * 1000)

    def later(self) -> None:
        self.written.bookkeeper.network.now += DAY + 1

    def side(self) -> BookKeeperSide:
        scanner = self.written.scanner()
        scanner.verify_copies = StockCopies(lambda: self.bucket)
        return BookKeeperSide(scanner.tree, scanner.bookies, scanner, LoadedTopics(dict, set))

    def mark(self) -> MarkOutcome:
        side = self.side()
        scan = side.scanner.scan({self.ledger})
        return Quarantine(self.queue, side, WIDE, self.now_ms, "test").mark(scan, {self.ledger}).marks[0].outcome

    def round(self) -> None:
        rules = DeletionRules(bounds=WIDE)
        LedgerDeletionService(self.queue, {LedgerType.LEDGER: self.side()}, rules, Told(), self.now_ms).round()

    @property
    def record(self):
        return self.queue.read(ledger_record_name(self.ledger)).record

    @property
    def there(self) -> bool:
        return self.written.nodes.get(self.written.ledger_path(self.ledger)) is not None


def test_its_ledger_goes_in_two_phases_with_the_copy_read_back_in_each():
    ground = Ground()
    assert ground.mark() is MarkOutcome.MARKED
    assert ground.record.evidence.proof is DeletionProof.BOOKKEEPER_DELETED
    ground.later()
    ground.round()
    assert ground.record.state is DeletionState.DELETED
    assert not ground.there


def test_without_a_copy_nothing_is_marked():
    ground = Ground()
    ground.bucket = MemoryStore()
    assert ground.mark() is MarkOutcome.NOT_DELETABLE


def test_a_copy_that_went_since_keeps_the_ledger():
    ground = Ground()
    ground.mark()
    ground.later()
    ground.bucket.delete([data_key(COPY, ground.ledger)])
    ground.round()
    assert ground.there
    assert ground.record.state is DeletionState.KEPT


def test_a_bucket_that_is_away_keeps_the_ledger_and_is_asked_again():
    ground = Ground()
    ground.mark()
    ground.later()
    copies, ground.bucket = ground.bucket, MemoryStore()
    ground.round()
    assert ground.there
    assert ground.record.is_in_flight
    ground.bucket = copies
    ground.later()
    ground.round()
    assert not ground.there
