"""Objects of Pulsar's own offloader: an orphan is what no ledger list names, complete or not, on two looks, of our own
cluster; what cannot be told stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import pytest

from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.candidates import OrphanVerdict
from offloader.lifecycle.deletion.machine import (
    DeletionTry,
    FailedLook,
    GoneLedger,
    ReferencedLedger,
    UnprovenLedger,
    UnreferencedLedger,
    marked,
)
from offloader.lifecycle.deletion.records import PendingDeleteLedgerInfo
from offloader.lifecycle.ledgers.references import References, UnreadableNode
from offloader.metadata.stock_keys import data_key, index_key
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.storage.memory import MemoryStore

from .support import CERTAIN, HOUR, SUSPECT, StoreClock, archive, in_time, scanner

NO_STOCK = "it is in the bucket of Pulsar's own offloader, which is not named to us"
CLUSTER = "pulsarclustername"
OWNER = "managedledgername"

NAME = "acme/orders/persistent/placed"
META = {CLUSTER: "main", OWNER: NAME}


def uuid(number: int) -> str:
    return str(UUID(int=number))


class Listed(NamedTuple):
    ledger: int
    uuid: str
    complete: bool = True


def references(*listed: Listed, says_more: bool = False) -> References:
    ledgers = tuple(
        ListedLedger(one.ledger, 5, 100, 1, OffloadContext(one.uuid, one.complete, bookkeeper_deleted=False))
        for one in sorted(listed)
    )
    return References(
        "main", frozenset({"acme/orders"}), {NAME: ManagedLedger(ledgers, 3, says_more=says_more, created_ms=1)}
    )


def bucket(clock: StoreClock, *copies: tuple[int, str], meta: Mapping[str, str] = META) -> MemoryStore:
    store = MemoryStore()
    store.backing.clock_ms = clock
    for ledger, copy in copies:
        store.put(data_key(copy, ledger), b"data", meta=meta)
        store.put(index_key(copy, ledger), b"index", meta=meta)
    clock.now += 2 * HOUR
    return store


def stock(store: MemoryStore, clock: StoreClock, *stores: References) -> StockScanner:
    return StockScanner(store, lambda: stores, "main", clock, HOUR, alone=True)


def verdicts(scan: StockScanner) -> dict[str, OrphanVerdict]:
    return {each.key: each.ruling.verdict for each in scan.scan()}


LISTED = (Listed(11, uuid(1)), Listed(12, uuid(2), complete=False), Listed(13, uuid(30)))


def test_what_a_list_names_is_in_use_complete_or_not_and_only_what_none_names_is_an_orphan():
    clock = StoreClock()
    store = bucket(clock, (11, uuid(1)), (12, uuid(2)), (13, uuid(3)), (4, uuid(4)))
    store.put("notes", b"somebody's")
    found = verdicts(stock(store, clock, references(*LISTED)))
    assert found == {
        of(uuid(number), ledger): CERTAIN for number, ledger in ((3, 13), (4, 4)) for of in (data_key, index_key)
    }  # 13 was offloaded again, 4 was trimmed


@pytest.mark.parametrize(
    ("ledger", "made", "why"),
    [
        (12, 1, "No list has a whole copy"),  # its offload was begun when the backup was made, and again later
        (14, 1, "no trim leaves that"),  # the list does not have it yet
        (4, 10**15, "older than its ledger list"),  # the list was made anew, from the backup
    ],
)
def test_what_a_list_that_was_rolled_back_does_not_know_may_be_the_only_copy_and_stays(ledger, made, why):
    """Offloaded since the backup, and deleted from BookKeeper since: nothing else has it."""
    clock = StoreClock()
    store = bucket(clock, (ledger, uuid(9)))
    (name, node), *_ = references(*LISTED).lists.items()
    restored = stock(store, clock, replace(references(*LISTED), lists={name: replace(node, created_ms=made)}))
    found = restored.scan()
    assert [each.deletable for each in found] == [False, False]
    assert all(each.ruling.kept and why in each.ruling.evidence[-1] for each in found)
    archived, _ = archive()
    records = [marked(each.record("forged"), None, clock()) for each in found]
    side = BucketSide(archived.store, scanner(archived.store, clock), restored)
    assert {type(look) for look in side.look(records).looks.values()} == {UnprovenLedger}


def test_a_list_that_has_no_ledgers_any_more_proves_no_trim():
    clock = StoreClock()
    other = {"acme/orders/persistent/other": ManagedLedger(references(*LISTED).lists[NAME].ledgers, 1, created_ms=1)}
    restored = replace(references(), lists={**references().lists, **other})
    found = stock(bucket(clock, (4, uuid(4))), clock, restored).scan()
    assert all(each.ruling.kept and "list is empty" in each.ruling.evidence[-1] for each in found)


@pytest.mark.parametrize("meta", [{}, {OWNER: NAME}, META | {CLUSTER: "elsewhere"}])
def test_what_says_another_cluster_or_none_is_foreign(meta: Mapping[str, str]):
    clock = StoreClock()
    store = bucket(clock, (4, uuid(4)), meta=meta)
    assert verdicts(stock(store, clock, references(*LISTED))) == {}


@pytest.mark.parametrize(
    "store",
    [
        replace(references(*LISTED), namespaces=frozenset()),
        replace(references(), lists={}),
        references(*LISTED, says_more=True),
        References("main", frozenset({"acme/orders"}), {NAME: UnreadableNode(1, "damaged")}),
    ],
)
def test_where_lists_cannot_tell_it_is_suspect(store: References):
    clock = StoreClock()
    found = verdicts(stock(bucket(clock, (4, uuid(4))), clock, store))
    assert set(found.values()) == {SUSPECT}
    assert len(found) == 2


def test_an_upload_that_is_listed_only_after_we_looked_at_it_is_young():
    clock = StoreClock()
    store = bucket(clock)
    store.put(data_key(uuid(9), 9), b"data", meta=META)
    assert set(verdicts(stock(store, clock, references(*LISTED))).values()) == {SUSPECT}


def test_lists_are_read_after_the_keys():
    clock = StoreClock()
    store = bucket(clock, (4, uuid(4)))
    listed = []

    def read() -> tuple[References, ...]:
        listed.append([key for key, _ in store.list()])
        store.put(data_key(uuid(5), 5), b"later", meta=META)
        return (references(*LISTED),)

    found = StockScanner(store, read, "main", clock, 0, alone=True).scan()
    assert {each.key for each in found} == {data_key(uuid(4), 4), index_key(uuid(4), 4)}
    assert len(listed) == 1


def records_of(scan: StockScanner) -> list[PendingDeleteLedgerInfo]:
    found = (marked(each.record("scan"), None, scan.clock_ms()) for each in scan.scan() if each.deletable)
    return [record for record in found if record is not None]


def test_the_second_look_reads_the_lists_once_more_and_deletes_data_before_the_index():
    made, clock = archive()
    store = bucket(clock, (4, uuid(4)), (5, uuid(5)))
    first = stock(store, clock, references(*LISTED))
    records = {record.object_key: record for record in records_of(first)}
    assert all(record.is_valid for record in records.values())
    assert len({record.name for record in records.values()}) == 4
    second = stock(store, clock, references(*LISTED, Listed(5, uuid(5), complete=False)))
    side = BucketSide(made.store, scanner(made.store, clock), second)
    looks = side.look(list(records.values())).looks
    kinds = {key: type(looks[record.name]) for key, record in records.items()}
    assert kinds == {
        data_key(uuid(4), 4): UnreferencedLedger,
        index_key(uuid(4), 4): UnreferencedLedger,
        data_key(uuid(5), 5): ReferencedLedger,
        index_key(uuid(5), 5): ReferencedLedger,
    }
    data, index = records[data_key(uuid(4), 4)], records[index_key(uuid(4), 4)]
    assert side.delete(index, in_time)[0] is DeletionTry.REFUSED
    assert [side.delete(data, in_time), side.delete(index, in_time)] == [(DeletionTry.DONE, "")] * 2
    assert side.look([data, index]).looks == {data.name: GoneLedger(), index.name: GoneLedger()}


def test_a_record_that_others_have_made_is_found_by_ledger_and_uuid():
    made, clock = archive()
    scan = stock(bucket(clock, (4, uuid(4))), clock, references(*LISTED))
    (record,) = (each for each in records_of(scan) if each.object_key == data_key(uuid(4), 4))
    forged = replace(record, object_key="")
    side = BucketSide(made.store, scanner(made.store, clock), scan)
    assert isinstance(side.look([forged]).looks[forged.name], UnreferencedLedger)


def test_without_that_bucket_nothing_is_said_of_its_objects():
    made, clock = archive()
    records = records_of(stock(bucket(clock, (4, uuid(4))), clock, references(*LISTED)))
    side = BucketSide(made.store, scanner(made.store, clock))
    assert set(side.look(records).looks.values()) == {FailedLook(NO_STOCK)}
    assert side.delete(records[0], in_time)[0] is DeletionTry.REFUSED


def test_nothing_is_certain_where_another_cluster_of_the_same_name_may_share_the_bucket():
    """Its copies are named by lists that are not read."""
    clock = StoreClock()
    store = bucket(clock, (4, uuid(4)))
    shared = StockScanner(store, lambda: [references(*LISTED)], "main", clock, HOUR)
    assert set(verdicts(shared).values()) == {OrphanVerdict.SUSPECT}
    assert not any(isinstance(one, str) or one.deletable for one in shared.look([data_key(uuid(4), 4)]).values())
    assert set(verdicts(stock(store, clock, references(*LISTED))).values()) == {OrphanVerdict.CERTAIN}
