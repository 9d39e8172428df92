"""What `S3Store` must do when answers are lost, cut short or refusals, on any S3: `class TestX(S3FaultContract)`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    CredentialsExpiredError,
    FatalError,
    ObjectArchivedError,
    OffloadError,
    OutcomeUnknownError,
    PartRejectedError,
    StoreFullError,
    UploadGoneError,
)
from offloader.ports.object_store import ObjectStore
from offloader.storage.metered import MeteredStore
from tests.storage.contract_faults import FOR_EVER, FaultContract, Wire
from tests.storage.proxy import Proxy, Rule, xml_error
from tests.storage.subject import upload_parts


def put(method: str, path: str) -> bool:
    return method == "PUT"


def get(method: str, path: str) -> bool:
    return method == "GET"


def head(method: str, path: str) -> bool:
    return method == "HEAD"


def begin(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("?uploads")


def complete(method: str, path: str) -> bool:
    return method == "POST" and "uploadId=" in path


def part(method: str, path: str) -> bool:
    return method == "PUT" and "partNumber=" in path


def delete(method: str, path: str) -> bool:
    return method == "DELETE"


NO_CHECKSUMS = {"x-amz-checksum-crc32c": "", "x-amz-checksum-type": ""}

S3 = Wire(
    scheme="s3",
    put=put,
    get=get,
    listing=get,
    begin=begin,
    part=part,
    complete=complete,
    delete=delete,
    busy={"status": 503, "code": "SlowDown"},
    broken={"status": 500, "code": "InternalError"},
    changed={"status": 412, "code": "PreconditionFailed"},
    say=xml_error,
)


class S3FaultContract(FaultContract):
    """What S3 alone answers."""

    wire = S3

    def test_a_create_refused_with_409_is_tried_again(self, proxy: Proxy, store: ObjectStore) -> None:
        refused = proxy.add(Rule(put, times=2, status=409, code="ConditionalRequestConflict"))
        assert store.put("slot", b"token", if_absent=True) is not None
        assert refused.times == 0

    def test_a_begin_whose_answer_is_lost_is_unknown_and_not_repeated(self, proxy: Proxy, store: ObjectStore) -> None:
        proxy.add(Rule(begin, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            store.begin("k")
        assert [begin(*request) for request in proxy.requests] == [True]

    def test_a_part_that_was_damaged_on_the_way_is_sent_again(self, proxy: Proxy, store: ObjectStore) -> None:
        upload = store.begin("k")
        damaged = proxy.add(Rule(part, status=400, code="BadDigest"))
        store.commit(upload, upload_parts(store, upload, [b"data"]))
        assert damaged.times == 0

    def test_a_commit_that_finds_no_upload_compares_the_object(self, proxy: Proxy, store: ObjectStore) -> None:
        # MinIO answers so when a completed upload is completed again.
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"data"])
        proxy.add(Rule(complete))
        proxy.add(Rule(complete, status=404, code="NoSuchUpload"))
        assert store.commit(upload, parts).size == 4
        assert not any(get(*request) for request in proxy.requests)  # checksums and ETags are proof
        rival = store.begin("k")
        others = upload_parts(store, rival, [b"DATA"])
        proxy.add(Rule(complete, status=404, code="NoSuchUpload"))
        with pytest.raises(UploadGoneError):
            store.commit(rival, others)

    @pytest.mark.parametrize("etag", ['"opaque"', f'"{"0" * 32}"', f'"{"0" * 32}-1"', f'"{"0" * 32}-7"'])
    def test_an_etag_of_an_unexpected_form_does_not_make_a_completed_upload_look_lost(
        self, proxy: Proxy, store: ObjectStore, etag: str
    ) -> None:
        # SeaweedFS computes the ETag of a large object from its own chunks, and keeps no checksums.
        proxy.add(Rule(head, times=FOR_EVER, answered={"etag": etag} | NO_CHECKSUMS))
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"data"])
        assert store.commit(upload, parts).size == 4
        assert any(get(*request) for request in proxy.requests)  # the answer named another ETag: bytes are compared
        proxy.add(Rule(complete, times=2, status=404, code="NoSuchUpload"))
        assert store.commit(upload, parts).size == 4
        others = [replace(parts[0], crc32c=parts[0].crc32c ^ 1)]
        with pytest.raises(UploadGoneError):
            store.commit(upload, others)

    def test_a_write_whose_effect_cannot_be_looked_at_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"data"])
        proxy.add(Rule(head, times=FOR_EVER, status=503, code="SlowDown"))
        with pytest.raises(OutcomeUnknownError):
            impatient.commit(upload, parts)
        assert direct.stat("k") is not None
        direct.put("slot", b"token", if_absent=True)
        proxy.add(Rule(get, times=FOR_EVER, status=503, code="SlowDown"))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token", if_absent=True)

    def test_a_look_with_expired_credentials_names_the_cause(self, proxy: Proxy, store: ObjectStore) -> None:
        proxy.add(Rule(lambda method, _: method in ("HEAD", "GET"), times=FOR_EVER, status=400, code="ExpiredToken"))
        with pytest.raises(CredentialsExpiredError, match="have expired"):
            store.stat("k")
        outcomes: list[str] = []
        with pytest.raises(CredentialsExpiredError):
            MeteredStore(store, lambda verb, seconds, outcome: outcomes.append(outcome)).stat("k")
        assert outcomes == ["expired"]

    def test_a_commit_refused_with_409_is_tried_again(self, proxy: Proxy, store: ObjectStore) -> None:
        upload = store.begin("k")
        proxy.add(Rule(complete, times=2, status=409, code="OperationAborted"))
        assert store.commit(upload, upload_parts(store, upload, [b"data"])).size == 4

    @pytest.mark.parametrize(
        ("status", "code", "expected", "text"),
        [
            (403, "AccessDenied", AccessDeniedError, "credentials"),
            (403, "InvalidAccessKeyId", AccessDeniedError, "access key"),
            (400, "ExpiredToken", CredentialsExpiredError, "expired"),
            (403, "InvalidObjectState", ObjectArchivedError, "archive tier"),
            (403, "SignatureDoesNotMatch", AccessDeniedError, "credentials"),
            (403, "RequestTimeTooSkewed", FatalError, "clock"),
            (404, "NoSuchBucket", BucketNotFoundError, "bucket"),
            (403, "QuotaExceeded", StoreFullError, "quota"),
            (507, "XMinioStorageFull", StoreFullError, "room"),
            (507, "InsufficientCapacity", StoreFullError, "room"),
            (400, "InvalidPart", PartRejectedError, "part"),
            (400, "EntityTooSmall", PartRejectedError, "small"),
            (400, "InvalidArgument", FatalError, "refuses"),
        ],
    )
    def test_a_refusal_is_not_repeated_and_says_what_to_do(
        self, proxy: Proxy, store: ObjectStore, status: int, code: str, expected: type[OffloadError], text: str
    ) -> None:
        proxy.add(Rule(put, times=FOR_EVER, status=status, code=code))
        with pytest.raises(expected, match=text) as caught:
            store.put("k", b"x")
        assert type(caught.value) is expected
        assert "\n" not in str(caught.value)
        assert len(proxy.requests) == 1
