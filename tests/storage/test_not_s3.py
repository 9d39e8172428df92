"""What `S3Store` says of an endpoint that is no S3: one line, with what to do. No write counts as refused there: it may
have happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from offloader.errors import FatalError, OutcomeUnknownError
from offloader.ports.object_store import ObjectStore, UploadedPart
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.examples import few
from tests.storage.answering import one_answer

PART = UploadedPart(1, 1, "e", 1)
READS: dict[str, Callable[[ObjectStore], object]] = {
    "read": lambda store: store.read("k"),
    "stat": lambda store: store.stat("k"),
    "list": lambda store: list(store.list()),
    "list_uploads": lambda store: list(store.list_uploads()),
}
WRITES: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("k", b"x", if_absent=True),
    "begin": lambda store: store.begin("k"),
    "put_part": lambda store: store.put_part("id:k", 1, 0, b"x", 1),
    "commit": lambda store: store.commit("id:k", [PART]),
}
ALL = READS | WRITES


@contextmanager
def answering(
    status: int, page: bytes = b"", *, root: str = "s3://b/p", **headers: str
) -> Iterator[tuple[ObjectStore, list[str]]]:
    """A store whose endpoint gives this answer to everything, and the paths that it was asked for."""
    with one_answer(status, page, headers) as (url, asked):
        store = open_store(StoreSettings(root, url, "us-east-1", "x", "y", (("retry_deadline", "0.1"),)))
        try:
            yield store, asked
        finally:
            store.close()


@pytest.mark.parametrize("call", ALL)
@pytest.mark.parametrize("status", few([301, 302, 307, 308], 1))
def test_an_endpoint_that_only_redirects_is_asked_once_and_named(call: str, status: int) -> None:
    with answering(status, b"<html>moved</html>", Location="https://elsewhere/k") as (store, asked):
        with pytest.raises(FatalError, match=r"correct storage\.endpoint .*https://elsewhere/k"):
            ALL[call](store)
        assert len(asked) == 1


@pytest.mark.parametrize("call", READS)
def test_an_answer_without_content_is_no_empty_bucket_and_no_object(call: str) -> None:
    with answering(200) as (store, _), pytest.raises(FatalError, match=r"check storage\.endpoint"):
        READS[call](store)


@pytest.mark.parametrize("call", WRITES)
def test_a_write_that_is_answered_without_content_may_have_happened(call: str) -> None:
    with answering(200) as (store, _), pytest.raises(OutcomeUnknownError, match=r"check storage\.endpoint"):
        WRITES[call](store)


@pytest.mark.parametrize("call", ["read", "stat"])
def test_a_page_made_for_people_is_no_object(call: str) -> None:
    page = b"<!doctype html><html lang=en><title>Console</title></html>"
    with answering(200, page) as (store, _), pytest.raises(FatalError, match=r"check storage\.endpoint"):
        READS[call](store)
