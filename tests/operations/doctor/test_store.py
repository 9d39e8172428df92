"""Life-cycle rules, clocks, roots, permissions."""

from __future__ import annotations

import pytest

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    DamagedObjectError,
    DamagedRecordError,
    PartRejectedError,
    StoreUnavailableError,
)
from offloader.metadata.state import Root
from offloader.offload.core.check import Verdict
from offloader.operations.doctor import store_checks
from offloader.operations.doctor.probes import ahead, try_upload
from offloader.operations.doctor.store_checks import BucketFacts
from offloader.storage.memory import MemoryStore

HOUR, DAY = 3_600_000, 86_400_000
OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL
ABORT = {
    "ID": "tidy",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
}
EXPIRE = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "archive/"}, "Expiration": {"Days": 30}}
FREEZE = {"Status": "Enabled", "Prefix": "", "Transitions": [{"Days": 30, "StorageClass": "GLACIER"}]}


@pytest.mark.parametrize(
    ("rules", "roll", "verdicts"),
    [
        ([], HOUR, [OK]),
        ([ABORT], HOUR, [OK]),
        ([ABORT], DAY, [FAIL]),
        ([EXPIRE], HOUR, [FAIL]),
        ([{**EXPIRE, "Status": "Disabled"}], HOUR, [OK]),
        ([{**EXPIRE, "Filter": {"Prefix": "logs/"}}], HOUR, [OK]),
        ([{**EXPIRE, "Filter": {"Prefix": "archive/production/public/"}}], HOUR, [FAIL]),
        ([{**EXPIRE, "Filter": {"And": {"Prefix": "archive/", "Tags": [{"Key": "a", "Value": "b"}]}}}], HOUR, [OK]),
        ([{**EXPIRE, "Expiration": {"ExpiredObjectDeleteMarker": True}}], HOUR, [OK]),
        ([FREEZE], HOUR, [WARN]),
        ([ABORT, EXPIRE, FREEZE], DAY, [FAIL, FAIL, WARN]),
    ],
)
def test_life_cycle_rules(rules, roll, verdicts) -> None:
    assert [c.verdict for c in store_checks.life_cycle(BucketFacts("archive/production", rules), roll)] == verdicts


def test_rules_that_cannot_be_read() -> None:
    (check,) = store_checks.life_cycle(AccessDeniedError("AccessDenied"), HOUR)
    assert check.verdict is WARN
    assert "GetLifecycleConfiguration" in check.remedy


@pytest.mark.parametrize(("offset", "verdicts"), [(None, []), (0.4, [OK]), (-45.0, [WARN]), (1_000.0, [FAIL])])
def test_clocks(offset, verdicts) -> None:
    assert [c.verdict for c in store_checks.clock("store-clock", offset)] == verdicts


def test_a_date_of_http() -> None:
    assert ahead(None) is None
    offset = ahead("Wed, 21 Oct 2099 07:28:00 GMT")
    assert offset is not None
    assert offset > 0


@pytest.mark.parametrize(
    ("found", "cluster", "verdict"),
    [
        (None, "a", OK),
        (Root("u", "a"), "a", OK),
        (Root("u", "a"), "b", FAIL),
        (Root("u", "a"), StoreUnavailableError("?"), OK),
        (DamagedRecordError("_root: no record"), "a", FAIL),
    ],
)
def test_the_root_is_of_this_cluster(found, cluster, verdict) -> None:
    assert store_checks.root(found, cluster).verdict is verdict


@pytest.mark.parametrize(("days", "verdict"), [(1, OK), (3, OK), (4, FAIL), (30, FAIL)])
def test_azure_keeps_an_open_segment_a_week(days, verdict) -> None:
    (check,) = store_checks.life_cycle(BucketFacts("", (store_checks.AZURES_RULE,)), days * 86_400_000)
    assert check.verdict is verdict


def test_folders_that_are_objects_are_refused() -> None:
    refused, _ = store_checks.life_cycle(BucketFacts("", (), has_folders=True), HOUR)
    assert refused.verdict is FAIL
    assert "hierarchical" in refused.message


def test_each_refusal_has_its_remedy() -> None:
    assert "s3:PutObject" in store_checks.works("store", "", AccessDeniedError("no")).remedy
    assert "create the bucket" in store_checks.works("store", "", BucketNotFoundError("no")).remedy
    assert "endpoint" in store_checks.works("store", "", StoreUnavailableError("no")).remedy


class UploadStore(MemoryStore):
    """Takes what one probe sends, and fails as a server of its own kind would."""

    equal_parts = damaged = undeletable = False

    def commit(self, upload, parts):
        listed = list(parts)
        assert len({part.size for part in listed}) == len(listed) == 3
        if self.equal_parts:
            raise PartRejectedError("all parts but the last must have the same length")
        return super().commit(upload, listed)

    def read(self, key, offset=0, length=None):
        data, stat = super().read(key, offset, length)
        return (data[:-1] if self.damaged else data), stat

    def delete(self, keys):
        if self.undeletable:
            raise AccessDeniedError("DeleteObject is denied")
        return super().delete(keys)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (None, None),
        ("equal_parts", PartRejectedError),
        ("damaged", DamagedObjectError),
        ("undeletable", AccessDeniedError),
    ],
)
def test_the_parts_of_an_upload_are_completed_read_and_deleted(fault, error) -> None:
    store = UploadStore(min_part_size=5 * 2**20)
    if fault is not None:
        setattr(store, fault, True)
    if error is None:
        try_upload(store)
    else:
        with pytest.raises(error):
            try_upload(store)
    assert list(store.list_uploads()) == []
    assert bool(list(store.list())) == (fault == "undeletable")
