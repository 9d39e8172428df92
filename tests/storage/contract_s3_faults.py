"""What `S3Store` must do when answers are lost, cut short or refusals, on any S3: `class TestX(S3FaultContract)`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    PartRejectedError,
    StoreFullError,
    StoreUnavailableError,
    UploadGoneError,
)
from offloader.ports.object_store import ObjectStore
from tests.storage.proxy import Proxy, Rule
from tests.storage.servers import S3Server, Stores, free_port
from tests.storage.subject import noise, upload_parts

FOR_EVER = 10_000
PATIENT_SECONDS, IMPATIENT_SECONDS = 60.0, 1.0


def any_request(method: str, path: str) -> bool:
    return True


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


class S3FaultContract:
    """`store` and `impatient`, which soon gives up, go through the proxy, `direct` does not."""

    @pytest.fixture
    def proxy(self, server: S3Server) -> Iterator[Proxy]:
        with Proxy(server.host, server.port) as proxy:
            yield proxy

    @pytest.fixture
    def root(self, server: S3Server) -> str:
        return server.fresh_root()

    @pytest.fixture
    def direct(self, server: S3Server, stores: Stores, root: str) -> ObjectStore:
        return stores.open(server.settings(root))

    @pytest.fixture
    def store(self, server: S3Server, root: str, proxy: Proxy) -> Iterator[ObjectStore]:
        stores = Stores()
        yield stores.open(server.settings(root, endpoint=proxy.url, retry_deadline=str(PATIENT_SECONDS)))
        stores.close()  # before the proxy, which waits for its connections

    @pytest.fixture
    def impatient(self, server: S3Server, root: str, proxy: Proxy) -> Iterator[ObjectStore]:
        stores = Stores()
        yield stores.open(server.settings(root, endpoint=proxy.url, retry_deadline=str(IMPATIENT_SECONDS)))
        stores.close()

    def test_a_create_whose_answer_is_lost_is_ours(self, proxy: Proxy, store: ObjectStore, direct: ObjectStore) -> None:
        lost = proxy.add(Rule(put))
        written = store.put("slot", b"token", if_absent=True)
        assert lost.times == 0
        assert written == direct.stat("slot")

    def test_a_create_that_lost_its_answer_and_the_race_is_not_ours(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        direct.put("slot", b"theirs", if_absent=True)
        proxy.add(Rule(put))
        assert store.put("slot", b"ours", if_absent=True) is None
        assert direct.read("slot")[0] == b"theirs"

    def test_a_create_refused_with_409_is_tried_again(self, proxy: Proxy, store: ObjectStore) -> None:
        refused = proxy.add(Rule(put, times=2, status=409, code="ConditionalRequestConflict"))
        assert store.put("slot", b"token", if_absent=True) is not None
        assert refused.times == 0

    def test_a_write_without_any_answer_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        proxy.add(Rule(put, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token", if_absent=True)
        assert direct.read("slot")[0] == b"token"

    def test_a_lost_answer_followed_by_refusals_is_unknown(self, proxy: Proxy, impatient: ObjectStore) -> None:
        proxy.add(Rule(put))
        proxy.add(Rule(put, times=FOR_EVER, status=503, code="SlowDown"))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token")

    def test_a_request_that_was_never_accepted_did_not_happen(
        self, server: S3Server, stores: Stores, root: str
    ) -> None:
        nobody = stores.open(
            server.settings(root, endpoint=f"http://127.0.0.1:{free_port()}", retry_deadline=str(IMPATIENT_SECONDS))
        )
        with pytest.raises(StoreUnavailableError):
            nobody.put("slot", b"x", if_absent=True)
        with pytest.raises(StoreUnavailableError):
            nobody.read("slot")

    def test_a_store_that_asks_for_less_is_left_alone_until_the_deadline(
        self, proxy: Proxy, store: ObjectStore, impatient: ObjectStore
    ) -> None:
        proxy.add(Rule(put, times=2, status=503, code="SlowDown"))
        assert store.put("slot", b"x") is not None
        proxy.add(Rule(put, times=FOR_EVER, status=503, code="SlowDown"))
        before, began = len(proxy.requests), time.monotonic()
        with pytest.raises(StoreUnavailableError):
            impatient.put("slot", b"y")
        assert IMPATIENT_SECONDS / 2 < time.monotonic() - began < PATIENT_SECONDS
        assert 2 <= len(proxy.requests) - before <= 40

    def test_an_internal_error_leaves_a_write_unknown_and_a_read_unavailable(
        self, proxy: Proxy, impatient: ObjectStore
    ) -> None:
        proxy.add(Rule(any_request, times=FOR_EVER, status=500, code="InternalError"))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("k", b"x")
        with pytest.raises(StoreUnavailableError):
            impatient.read("k")

    def test_a_deletion_by_etag_whose_answer_is_lost_happened(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        found = direct.put("one", b"x")
        assert found is not None
        lost = proxy.add(Rule(delete))
        assert store.delete_if("one", found.etag)
        assert lost.times == 0
        assert direct.stat("one") is None

    def test_what_is_written_again_right_before_its_deletion_by_etag_stays(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        found = direct.put("one", b"x")
        assert found is not None
        proxy.add(Rule(delete, status=412, code="PreconditionFailed"))
        assert not store.delete_if("one", found.etag)
        assert direct.stat("one") is not None

    def test_a_deletion_by_etag_without_any_answer_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        found = direct.put("one", b"x")
        assert found is not None
        proxy.add(Rule(delete, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            impatient.delete_if("one", found.etag)
        assert direct.stat("one") is None

    def test_a_body_that_is_cut_short_is_read_again(self, proxy: Proxy, store: ObjectStore) -> None:
        data = noise(300_000)
        store.put("k", data)
        cut = proxy.add(Rule(get, times=2, cut=100_000))
        assert store.read("k")[0] == data
        assert cut.times == 0
        proxy.add(Rule(get, times=1, cut=10))
        assert store.read("k", 1000, 50_000)[0] == data[1000:51_000]

    def test_a_body_that_is_always_cut_short_is_an_error(self, proxy: Proxy, impatient: ObjectStore) -> None:
        impatient.put("k", noise(300_000))
        proxy.add(Rule(get, times=FOR_EVER, cut=100_000))
        with pytest.raises(StoreUnavailableError):
            impatient.read("k")

    def test_a_listing_goes_on_after_a_lost_answer(self, proxy: Proxy, store: ObjectStore) -> None:
        store.put("k", b"x")
        lost = proxy.add(Rule(get, times=2))
        assert list(store.list()) == [("k", 1)]
        assert lost.times == 0

    def test_a_begin_whose_answer_is_lost_is_unknown_and_not_repeated(self, proxy: Proxy, store: ObjectStore) -> None:
        proxy.add(Rule(begin, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            store.begin("k")
        assert [begin(*request) for request in proxy.requests] == [True]

    def test_a_begin_that_was_refused_for_now_is_repeated(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        proxy.add(Rule(begin, times=2, status=503, code="SlowDown"))
        upload = store.begin("k")
        assert [found.upload for found in direct.list_uploads()] == [upload]

    def test_a_part_whose_answer_is_lost_is_sent_again(self, proxy: Proxy, store: ObjectStore) -> None:
        upload = store.begin("k")
        proxy.add(Rule(part))
        store.commit(upload, upload_parts(store, upload, [b"data"]))
        assert store.read("k")[0] == b"data"

    def test_a_part_that_was_damaged_on_the_way_is_sent_again(self, proxy: Proxy, store: ObjectStore) -> None:
        upload = store.begin("k")
        damaged = proxy.add(Rule(part, status=400, code="BadDigest"))
        store.commit(upload, upload_parts(store, upload, [b"data"]))
        assert damaged.times == 0

    def test_a_commit_whose_answer_is_lost_happened(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"data"])
        lost = proxy.add(Rule(complete))
        assert store.commit(upload, parts) == direct.stat("k")
        assert lost.times == 0

    def test_a_commit_that_finds_no_upload_compares_the_object(self, proxy: Proxy, store: ObjectStore) -> None:
        # MinIO answers so when a completed upload is completed again.
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"data"])
        proxy.add(Rule(complete))
        proxy.add(Rule(complete, status=404, code="NoSuchUpload"))
        assert store.commit(upload, parts).size == 4
        rival = store.begin("k")
        others = upload_parts(store, rival, [b"DATA"])
        proxy.add(Rule(complete, status=404, code="NoSuchUpload"))
        with pytest.raises(UploadGoneError):
            store.commit(rival, others)

    def test_a_commit_without_any_answer_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"data"])
        proxy.add(Rule(complete, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            impatient.commit(upload, parts)
        assert direct.commit(upload, parts) == direct.stat("k")

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

    def test_a_commit_refused_with_409_is_tried_again(self, proxy: Proxy, store: ObjectStore) -> None:
        upload = store.begin("k")
        proxy.add(Rule(complete, times=2, status=409, code="OperationAborted"))
        assert store.commit(upload, upload_parts(store, upload, [b"data"])).size == 4

    @pytest.mark.parametrize(
        ("status", "code", "expected", "text"),
        [
            (403, "AccessDenied", AccessDeniedError, "credentials"),
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

    def test_a_bucket_that_does_not_exist_is_named(self, server: S3Server, stores: Stores) -> None:
        store = stores.open(server.settings("s3://no-such-bucket/root"))
        with pytest.raises(BucketNotFoundError, match="no-such-bucket"):
            store.put("k", b"x")
        with pytest.raises(BucketNotFoundError):
            list(store.list())
