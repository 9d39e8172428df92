"""Who says which objects are whose: a record, the brokers, or the bucket."""

from __future__ import annotations

import itertools
import pickle

import pytest

from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.archive.reading import stores
from offloader.errors import BrokerUnavailableError, DamagedRecordError
from offloader.metadata.stock_keys import data_key
from offloader.pulsar.settings import PulsarSettings
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.support import TOPIC
from tests.fakes.ledger_metadata import encode_managed_ledger
from tests.pulsar.test_rest import FakeAdmin

from .support import OTHER_UUID, UUID, messages, put_ledger

_NAMES = itertools.count()
PATH = f"/admin/v2/{TOPIC.rest_path}"
STATS = {
    "currentLedgerEntries": 1,
    "currentLedgerSize": 10,
    "lastConfirmedEntry": "8:0",
    "state": "LedgerOpened",
    "ledgers": [
        {"ledgerId": 3, "entries": 5, "size": 300, "offloaded": True},
        {"ledgerId": 8, "entries": 0, "size": 0, "offloaded": False},
    ],
    "cursors": {},
}
INFO = {
    "creationDate": "1970-01-01T01:00:00.001+01:00",
    "ledgers": [{"ledgerId": 8}, {"ledgerId": 3, "offloadedContextUuid": OTHER_UUID}],
}


@pytest.fixture
def settings() -> StoreSettings:
    """A bucket with ledger 3 under `UUID`."""
    found = StoreSettings(f"memory://source-{next(_NAMES)}")
    put_ledger(open_store(found), 3, messages(3, 5))
    return found


@pytest.fixture
def admin():
    server = FakeAdmin()
    yield server
    server.close()


def asking(admin: FakeAdmin) -> PulsarSettings:
    return PulsarSettings(admin_url=f"http://{admin.host}")


def test_the_bucket_is_asked_where_nobody_else_is(settings) -> None:
    found = LedgerBucket(settings).find(TOPIC)
    assert [(held.uuid, held.store) for held in found.ledgers] == [(UUID, settings.root)]
    assert found.listed is None


def test_brokers_say_more(settings, admin) -> None:
    admin.on(f"{PATH}/internalStats", STATS)
    admin.on(f"{PATH}/internal-info", INFO)
    found = LedgerBucket(settings, admin=asking(admin)).find(TOPIC)
    assert [(held.uuid, held.store) for held in found.ledgers] == [(OTHER_UUID, settings.root)]
    assert found.created == 1
    assert found.listed is not None
    # In this order: a copy that is complete keeps its uuid.
    assert [path for _, path in admin.asked] == [f"{PATH}/internalStats", f"{PATH}/internal-info"]


def test_a_topic_that_brokers_do_not_know_any_more_is_looked_for_in_the_bucket(settings, admin) -> None:
    assert [held.uuid for held in LedgerBucket(settings, admin=asking(admin)).find(TOPIC).ledgers] == [UUID]


def test_brokers_that_do_not_answer_are_no_reason_to_guess(settings, admin) -> None:
    admin.on(f"{PATH}/internalStats", "", 503)
    with pytest.raises(BrokerUnavailableError):
        LedgerBucket(settings, admin=asking(admin)).find(TOPIC)


def test_a_record_goes_before_all_others(settings, admin) -> None:
    data = encode_managed_ledger(
        ManagedLedger(
            (ListedLedger(3, 5, 300, 1, OffloadContext(OTHER_UUID, True, False, (("bucket", "elsewhere"),))),)
        )
    )
    found = LedgerBucket(settings, records={TOPIC: data}, admin=asking(admin)).find(TOPIC)
    assert [held.uuid for held in found.ledgers] == [OTHER_UUID]
    assert admin.asked == []


def test_a_damaged_record_is_no_reason_to_guess(settings) -> None:
    with pytest.raises(DamagedRecordError):
        LedgerBucket(settings, records={TOPIC: b"\x47\x78damaged"}).find(TOPIC)


@pytest.mark.parametrize(
    ("root", "bucket", "url"),
    [
        ("s3://ledgers", "", "s3://ledgers"),
        ("s3://ledgers", "ledgers", "s3://ledgers"),
        ("s3://ledgers", "older", "s3://older"),
        ("S3://ledgers", "older", "s3://older"),
        ("file:///copy/of/the/bucket", "ledgers", "file:///copy/of/the/bucket"),
    ],
)
def test_a_context_may_name_another_bucket(root, bucket, url, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(stores, "open_store", lambda settings, *, read_only: asked.append((settings, read_only)))
    source = LedgerBucket(StoreSettings(root, "http://127.0.0.1:1", access_key="key"))
    assert source.url_of(bucket) == url
    # It is reached as the given bucket is, not as the archive's own root.
    stores.Stores(StoreSettings("s3://archive", "http://127.0.0.1:2"), (source.store,)).open(source.url_of(bucket))
    assert asked == [(StoreSettings(url, "http://127.0.0.1:1", access_key="key"), True)]


def test_what_is_in_the_bucket_without_being_a_ledger_is_told(settings) -> None:
    open_store(settings).delete([data_key(UUID, 3)])
    assert len(LedgerBucket(settings).scan().topics[TOPIC].findings) == 1
    open_store(settings).put("readme.txt", b"")
    assert len(LedgerBucket(settings).scan().findings) == 1


def test_it_can_be_sent_to_other_processes(settings) -> None:
    source = LedgerBucket(settings, records={TOPIC: b""}, cluster="east")
    assert pickle.loads(pickle.dumps(source)) == source
