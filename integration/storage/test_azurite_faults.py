"""Azure Blob Storage's client when Azurite's answers are lost, cut short, late or refusals."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

import pytest

from integration.azurite import AzuriteServer
from offloader.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    FatalError,
    IntegrityError,
    OffloadError,
    OutcomeUnknownError,
    PartRejectedError,
    StoreFullError,
    StoreUnavailableError,
)
from offloader.ports.object_store import ObjectStore, UploadedPart
from tests.storage.contract_faults import FOR_EVER, PATIENT_SECONDS, FaultContract, Wire
from tests.storage.proxy import Proxy, Rule, xml_error
from tests.storage.servers import Stores
from tests.storage.subject import noise, upload_parts

pytestmark = pytest.mark.azurite


def put(method: str, path: str) -> bool:
    return method == "PUT"


def get(method: str, path: str) -> bool:
    return method == "GET"


def head(method: str, path: str) -> bool:
    return method == "HEAD"


def begin(method: str, path: str) -> bool:
    return method == "PUT" and "/.uploads/" in path


def part(method: str, path: str) -> bool:
    return method == "PUT" and "comp=block&" in f"{path}&"


def complete(method: str, path: str) -> bool:
    return method == "PUT" and "comp=blocklist" in path


def delete(method: str, path: str) -> bool:
    return method == "DELETE"


def refusal(status: int, code: str) -> tuple[dict[str, str], bytes]:
    """Azure's way to refuse: its code is in a header, too, where there is one."""
    headers, body = xml_error(status, code)
    return headers | ({"x-ms-error-code": code} if code else {}), body


AZURE = Wire(
    scheme="az",
    put=put,
    get=get,
    listing=get,
    begin=begin,
    part=part,
    complete=complete,
    delete=delete,
    busy={"status": 503, "code": "ServerBusy"},
    broken={"status": 500, "code": "InternalError"},
    changed={"status": 412, "code": "ConditionNotMet"},
    say=refusal,
)


class TestAzuriteWithFaults(FaultContract):
    """Whatever every store of a cloud does, and what Azure alone answers."""

    wire = AZURE

    @pytest.fixture
    def server(self, azurite: AzuriteServer) -> AzuriteServer:
        return azurite

    def test_a_create_that_is_refused_by_412_is_not_ours(self, proxy: Proxy, store: ObjectStore) -> None:
        proxy.add(Rule(put, status=412, code="ConditionNotMet"))
        assert store.put("slot", b"token", if_absent=True) is None

    def test_a_server_that_is_silent_is_not_waited_for(self, server: AzuriteServer, stores: Stores, root: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
            store = stores.open(server.settings(root, endpoint=endpoint, read_timeout="0.5", retry_deadline="0.1"))
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError):
                store.stat("k")
            with pytest.raises(OutcomeUnknownError):
                store.put("k", b"x", if_absent=True)
            assert time.monotonic() - began < store.longest_call + PATIENT_SECONDS

    def test_a_deletion_of_many_whose_answer_is_lost_is_made_again(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        for key in "abc":
            direct.put(key, b"x")
        lost = proxy.add(Rule(lambda method, path: method == "POST", times=2))
        store.delete(["a", "b"])
        assert lost.times == 0
        assert [key for key, _ in direct.list()] == ["c"]

    def test_a_range_is_read_in_one_request(self, proxy: Proxy, store: ObjectStore) -> None:
        store.put("k", noise(20_000_000))
        before = len(proxy.requests)
        data, found = store.read("k", 1_000_000, 18_000_000)
        assert len(proxy.requests) - before == 1
        assert (len(data), found.size) == (18_000_000, 20_000_000)
        assert store.read("k")[0] == noise(20_000_000)
        assert len(proxy.requests) - before == 2

    @pytest.mark.parametrize(
        ("status", "code", "expected", "text"),
        [
            (403, "AuthenticationFailed", AccessDeniedError, "clock"),
            (403, "AuthorizationPermissionMismatch", AccessDeniedError, "roles"),
            (403, "AuthorizationFailure", AccessDeniedError, "firewall"),
            (401, "NoAuthenticationInformation", AccessDeniedError, "credentials"),
            (404, "ContainerNotFound", BucketNotFoundError, "container"),
            (404, "ResourceNotFound", BucketNotFoundError, "account"),
            (507, "InsufficientStorage", StoreFullError, "room"),
            (409, "BlobImmutableDueToPolicy", FatalError, "policy"),
            (409, "BlobArchived", FatalError, "tier"),
            (412, "LeaseIdMissing", FatalError, "lease"),
            (400, "InvalidHeaderValue", FatalError, "refuses"),
        ],
    )
    def test_a_refusal_is_not_repeated_and_says_what_to_do(
        self, proxy: Proxy, store: ObjectStore, status: int, code: str, expected: type[OffloadError], text: str
    ) -> None:
        proxy.add(Rule(put, times=FOR_EVER, status=status, code=code))
        with pytest.raises(expected, match=text) as caught:
            store.put("k", b"x", if_absent=True)
        assert type(caught.value) is expected
        assert code in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(proxy.requests) == 1

    def test_a_begin_whose_answer_is_lost_is_made_again_and_is_one(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        lost = proxy.add(Rule(begin, times=2))
        upload = store.begin("k")
        assert lost.times == 0
        assert [found.upload for found in direct.list_uploads()] == [upload]

    @pytest.mark.parametrize(
        "rule", [Rule(part), Rule(part, status=400, code="Md5Mismatch"), Rule(part, unsent=True)], ids=lambda r: r.code
    )
    def test_a_part_that_was_not_confirmed_is_sent_again(self, proxy: Proxy, store: ObjectStore, rule: Rule) -> None:
        upload = store.begin("k")
        rule = proxy.add(replace(rule))
        store.commit(upload, upload_parts(store, upload, [b"data"]))
        assert rule.times == 0
        assert store.read("k")[0] == b"data"

    def test_a_part_is_sent_once_and_its_upload_is_looked_at_once(self, proxy: Proxy, store: ObjectStore) -> None:
        upload = store.begin("k")
        before = len(proxy.requests)
        upload_parts(store, upload, [noise(5_000_000)])
        assert [part(*request) for request in proxy.requests[before:]] == [True, False]

    def test_a_commit_whose_answer_is_lost_happened(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"data"])
        lost = proxy.add(Rule(complete))
        assert store.commit(upload, parts) == direct.stat("k")
        assert lost.times == 0
        assert list(direct.list_uploads()) == []

    def test_a_commit_without_any_answer_is_unknown_and_may_be_repeated(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"data"])
        proxy.add(Rule(complete, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            impatient.commit(upload, parts)
        found = direct.stat("k")
        assert direct.commit(upload, parts) == found

    @pytest.mark.parametrize("matches", [head, delete], ids=["look", "end"])
    def test_a_commit_whose_effect_cannot_be_looked_at_or_ended_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore, matches: object
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"data"])
        proxy.add(Rule(matches, times=FOR_EVER, after=int(matches is head), status=503, code="ServerBusy"))
        with pytest.raises(OutcomeUnknownError):
            impatient.commit(upload, parts)
        assert direct.stat("k") is not None
        direct.commit(upload, parts)
        assert list(direct.list_uploads()) == []

    def test_blocks_that_vanished_are_parts_that_are_missing(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        """The service drops them a week after the last one, or when somebody else writes the blob; Azurite does not."""
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"data"])
        proxy.add(Rule(complete, status=400, code="InvalidBlockList"))
        with pytest.raises(PartRejectedError, match="week"):
            store.commit(upload, parts)
        assert direct.stat("k") is None
        store.commit(upload, upload_parts(store, upload, [b"data"]))
        assert store.read("k")[0] == b"data"

    @pytest.fixture
    def source(self, direct: ObjectStore) -> str:
        found = direct.put("source", noise(100_000))
        assert found is not None
        return found.etag

    def copy(self, store: ObjectStore, upload: str, etag: str) -> UploadedPart | None:
        return store.copy_part(upload, 1, 0, store, "source", 0, 100_000, etag)

    @pytest.mark.parametrize(
        "rule", [Rule(part), Rule(part, times=2, status=503, code="ServerBusy"), Rule(part, unsent=True)]
    )
    def test_a_copy_that_was_not_confirmed_is_made_again(
        self, proxy: Proxy, store: ObjectStore, source: str, rule: Rule
    ) -> None:
        rule = proxy.add(replace(rule))
        upload = store.begin("k", copies=True)
        copied = self.copy(store, upload, source)
        assert copied is not None
        assert rule.times == 0
        store.commit(upload, [copied])
        assert store.read("k")[0] == noise(100_000)

    @pytest.mark.parametrize(
        ("status", "code"),
        [(501, ""), (400, "UnsupportedHeader"), (403, "CannotVerifyCopySource"), (401, "NoAuthenticationInformation")],
    )
    def test_a_server_that_does_not_copy_for_us_is_asked_once(
        self, proxy: Proxy, store: ObjectStore, source: str, status: int, code: str
    ) -> None:
        proxy.add(Rule(part, status=status, code=code))
        upload = store.begin("k", copies=True)
        assert self.copy(store, upload, source) is None
        assert self.copy(store, upload, source) is None
        assert sum(part(*request) for request in proxy.requests) == 1
        store.commit(upload, upload_parts(store, upload, [b"sent"]))
        assert store.read("k")[0] == b"sent"

    def test_a_source_that_the_server_does_not_find_is_sent_where_it_is_there(
        self, proxy: Proxy, store: ObjectStore, source: str
    ) -> None:
        """Azure hides what may not be read."""
        proxy.add(Rule(part, status=404, code="CannotVerifyCopySource"))
        upload = store.begin("k", copies=True)
        assert self.copy(store, upload, source) is None
        assert self.copy(store, upload, source) is not None

    @pytest.mark.parametrize(
        ("status", "code"),
        [(412, "SourceConditionNotMet"), (412, "CannotVerifyCopySource"), (416, "InvalidRange")],
    )
    def test_a_source_that_was_replaced_since_is_damage(
        self, proxy: Proxy, store: ObjectStore, source: str, status: int, code: str
    ) -> None:
        proxy.add(Rule(part, status=status, code=code))
        with pytest.raises(IntegrityError, match="source"):
            self.copy(store, store.begin("k", copies=True), source)
