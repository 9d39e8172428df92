"""What `GcsStore` must do when answers are lost, cut short or refusals: `class TestX(GcsFaultContract)`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UploadGoneError,
)
from offloader.ports.object_store import ObjectStore
from tests.storage.contract_faults import FOR_EVER, IMPATIENT_SECONDS, FaultContract, Wire, any_request
from tests.storage.proxy import Proxy, Rule, json_error
from tests.storage.subject import noise, upload_parts

LONG = 9_000_000  # bytes; the library's own uploads send more than 8 MiB in two requests


def send(method: str, path: str) -> bool:
    """Of objects, parts, and the marker of an upload: the name is in the body."""
    return path.startswith("/upload/")


def media(method: str, path: str) -> bool:
    return method == "GET" and path.startswith("/download/")


def look(method: str, path: str) -> bool:
    return method == "GET" and "/o/" in path and not media(method, path)


def listing(method: str, path: str) -> bool:
    return method == "GET" and "/o?" in path


def compose(method: str, path: str) -> bool:
    return "/compose" in path


def delete(method: str, path: str) -> bool:
    return method == "DELETE"


GOOGLE = Wire(
    scheme="gs",
    put=send,
    get=media,
    listing=listing,
    begin=send,
    part=send,
    complete=compose,
    delete=delete,
    busy={"status": 429, "code": "rateLimitExceeded"},
    broken={"status": 503, "code": "backendError"},
    changed={"status": 412, "code": "conditionNotMet"},
    say=json_error,
)


class GcsFaultContract(FaultContract):
    """What Google alone answers."""

    wire = GOOGLE

    def test_a_part_is_one_request_and_a_look(self, proxy: Proxy, store: ObjectStore) -> None:
        upload = store.begin("k")
        before = len(proxy.requests)
        upload_parts(store, upload, [b"data"])
        sent, looked = proxy.requests[before:]
        assert send(*sent)
        assert look(*looked)

    def test_a_read_is_one_request(self, proxy: Proxy, store: ObjectStore) -> None:
        store.put("k", b"0123456789", meta={"role": "index"})
        before = len(proxy.requests)
        data, found = store.read("k", 3, 4)
        assert len(proxy.requests) == before + 1
        assert (data, found.size, dict(found.meta)) == (b"3456", 10, {"role": "index"})

    @pytest.mark.parametrize(
        "rule", [{"status": 403, "code": "userRateLimitExceeded"}, {"status": 409, "code": "conflict"}, GOOGLE.busy]
    )
    def test_who_is_too_fast_waits(self, proxy: Proxy, store: ObjectStore, rule: dict[str, Any]) -> None:
        refused = proxy.add(Rule(send, times=2, **rule))
        assert store.put("slot", b"token", if_absent=True) is not None
        assert refused.times == 0

    def test_a_begin_whose_answer_is_lost_leaves_one_upload(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        proxy.add(Rule(send))
        upload = store.begin("k")
        assert [found.upload for found in direct.list_uploads()] == [upload]

    def test_a_long_create_is_one_request_and_ours_where_its_answer_is_lost(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        proxy.add(Rule(send))
        written = store.put("slot", noise(LONG), if_absent=True)
        assert [send(*request) for request in proxy.requests] == [True, True, False]
        assert written == direct.stat("slot")
        assert store.put("slot", noise(LONG, "another"), if_absent=True) is None

    def test_a_part_that_cannot_be_looked_at_is_unknown(self, proxy: Proxy, impatient: ObjectStore) -> None:
        upload = impatient.begin("k")
        proxy.add(Rule(look, times=FOR_EVER, **GOOGLE.busy))
        with pytest.raises(OutcomeUnknownError):
            upload_parts(impatient, upload, [b"data"])

    def test_a_create_that_cannot_be_compared_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        direct.put("slot", b"token")
        proxy.add(Rule(media, times=FOR_EVER, **GOOGLE.busy))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token", if_absent=True)

    def test_an_upload_is_ended_before_its_parts_go(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"one", b"two"])
        proxy.add(Rule(delete, after=1, times=FOR_EVER, **GOOGLE.busy))
        with pytest.raises(StoreUnavailableError):
            impatient.abort(upload)
        with pytest.raises(UploadGoneError):
            direct.commit(upload, parts)
        assert [found.upload for found in direct.list_uploads()] == [upload]  # by what is left of it
        direct.abort(upload)
        assert list(direct.list_uploads()) == []

    def test_a_commit_that_could_not_remove_its_parts_is_repeated(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"one", b"two"])
        proxy.add(Rule(delete, times=FOR_EVER, **GOOGLE.busy))
        with pytest.raises(OutcomeUnknownError):
            impatient.commit(upload, parts)
        assert direct.read("k")[0] == b"onetwo"
        assert direct.commit(upload, parts) == direct.stat("k")
        assert list(direct.list_uploads()) == []

    def test_a_commit_that_had_ended_its_upload_and_left_parts_removes_them_when_repeated(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"one", b"two"])
        proxy.add(Rule(delete, after=1, times=FOR_EVER, **GOOGLE.busy))
        with pytest.raises(OutcomeUnknownError):
            impatient.commit(upload, parts)
        assert direct.commit(upload, parts) == direct.stat("k")
        assert list(direct.list_uploads()) == []

    def test_a_policy_that_answers_as_a_condition_does_is_none(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = store.begin("k")
        parts = upload_parts(direct, upload, [b"data"])
        policy = {"status": 412, "code": "orgPolicyConstraintFailed"}
        proxy.add(Rule(send, times=FOR_EVER, **policy))
        proxy.add(Rule(compose, times=FOR_EVER, **policy))
        for call in (
            lambda: store.put("slot", b"x"),
            lambda: store.put("slot", b"x", if_absent=True),
            lambda: store.begin("k"),
            lambda: upload_parts(store, upload, [b"data"]),
            lambda: store.commit(upload, parts),
        ):
            with pytest.raises(FatalError, match="policy of the organization"):
                call()
        assert direct.stat("slot") is None

    def test_bytes_that_are_not_those_of_the_range_are_none(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        direct.put("k", b"0123456789")
        whole = proxy.add(Rule(media, without="Range"))
        assert store.read("k", 3, 4)[0] == b"3456"
        assert whole.times == 0

    def test_many_deletions_do_not_each_wait_for_a_store_that_is_gone(
        self, proxy: Proxy, impatient: ObjectStore
    ) -> None:
        proxy.add(Rule(delete, times=FOR_EVER, **GOOGLE.busy))
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            impatient.delete([f"k{i}" for i in range(200)])
        assert time.monotonic() - began < 10 * IMPATIENT_SECONDS

    @pytest.mark.parametrize(
        ("status", "code", "expected", "text"),
        [
            (401, "authError", AccessDeniedError, "GOOGLE_APPLICATION_CREDENTIALS"),
            (403, "forbidden", AccessDeniedError, "roles"),
            (403, "retentionPolicyNotMet", FatalError, "retention policy"),
            (404, "notFound", BucketNotFoundError, "bucket"),
            (400, "invalid", FatalError, "refuses"),
            (413, "uploadTooLarge", FatalError, "size"),
        ],
    )
    def test_a_refusal_is_not_repeated_and_says_what_to_do(
        self, proxy: Proxy, store: ObjectStore, status: int, code: str, expected: type[OffloadError], text: str
    ) -> None:
        proxy.add(Rule(send, times=FOR_EVER, status=status, code=code))
        with pytest.raises(expected, match=text) as caught:
            store.put("k", b"x")
        assert type(caught.value) is expected
        assert "\n" not in str(caught.value)
        assert len(proxy.requests) <= 3  # google-auth asks again with another token

    @pytest.mark.parametrize("call", ["stat", "read", "list"])
    def test_a_404_of_somebody_else_is_no_absent_object_and_no_bucket(
        self, proxy: Proxy, store: ObjectStore, call: str
    ) -> None:
        proxy.add(Rule(any_request, times=FOR_EVER, status=404, empty=True))
        calls = {"stat": lambda: store.stat("k"), "read": lambda: store.read("k"), "list": lambda: list(store.list())}
        with pytest.raises(FatalError, match=r"none of Google's.*storage\.endpoint") as caught:
            calls[call]()
        assert type(caught.value) is FatalError
