"""What `S3Store` must do when a server that is to copy a part answers in its own way, too late, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.errors import OutcomeUnknownError
from offloader.ports.object_store import ObjectStore, UploadedPart
from tests.storage.contract_faults import FOR_EVER
from tests.storage.contract_s3_faults import S3FaultContract, part
from tests.storage.proxy import Proxy, Rule
from tests.storage.subject import noise, upload_parts


class CopyFaultContract(S3FaultContract):
    """Parts that the server copies: what it answers in its own way, too late, or not at all."""

    @pytest.fixture
    def source(self, direct: ObjectStore) -> str:
        found = direct.put("source", noise(100_000))
        assert found is not None
        return found.etag

    def copy(self, store: ObjectStore, upload: str, etag: str) -> UploadedPart | None:
        return store.copy_part(upload, 1, 0, store, "source", 0, 100_000, etag)

    @pytest.mark.parametrize(
        "rule",
        [
            Rule(part),
            Rule(part, cut=30),
            Rule(part, times=2, status=503, code="SlowDown"),
            Rule(part, times=2, status=200, code="InternalError"),
            Rule(part, times=2, status=200, code="SlowDown"),
            Rule(part, unsent=True),
        ],
        ids=["lost", "cut", "throttled", "error-in-200", "throttled-in-200", "hung-up"],
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

    def test_a_copy_without_any_answer_is_unknown_and_may_be_made_again(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore, source: str
    ) -> None:
        upload = impatient.begin("k", copies=True)
        proxy.add(Rule(part, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            self.copy(impatient, upload, source)
        copied = self.copy(direct, upload, source)
        assert copied is not None
        direct.commit(upload, [copied])
        assert direct.read("k")[0] == noise(100_000)

    @pytest.mark.parametrize(
        "rule",
        [
            Rule(part, status=501, code="NotImplemented"),
            Rule(part, status=405, code="MethodNotAllowed"),
            Rule(part, status=501, empty=True),
            Rule(part, status=200, empty=True),
        ],
        ids=["not-implemented", "not-allowed", "no-code", "taken-for-an-empty-part"],
    )
    def test_a_server_that_cannot_copy_is_asked_once(
        self, proxy: Proxy, store: ObjectStore, source: str, rule: Rule
    ) -> None:
        proxy.add(replace(rule))
        upload = store.begin("k", copies=True)
        assert self.copy(store, upload, source) is None
        before = len(proxy.requests)
        assert self.copy(store, upload, source) is None
        assert len(proxy.requests) == before
        store.commit(upload, upload_parts(store, upload, [b"sent"]))
        assert store.read("k")[0] == b"sent"

    def test_a_range_that_the_server_does_not_copy_is_sent_and_others_are_copied(
        self, proxy: Proxy, store: ObjectStore, source: str
    ) -> None:
        proxy.add(Rule(part, status=400, code="InvalidRequest"))
        upload = store.begin("k", copies=True)
        assert self.copy(store, upload, source) is None
        assert self.copy(store, upload, source) is not None
        store.abort(upload)

    def test_a_copy_is_one_request(self, proxy: Proxy, store: ObjectStore, source: str) -> None:
        upload = store.begin("k", copies=True)
        before = len(proxy.requests)
        assert self.copy(store, upload, source) is not None
        assert len(proxy.requests) == before + 1
        store.abort(upload)
