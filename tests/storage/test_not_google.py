"""What `GcsStore` says of an endpoint that is not Google's: one line, with what to do. No write counts as refused
there: it may have happened."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c

from offloader.errors import FatalError, OutcomeUnknownError
from offloader.ports.object_store import ObjectStore, UploadedPart
from tests.storage.test_not_s3 import READS, answering

ROOT = "gs://b/p"
WRITES: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("k", b"x", if_absent=True),
    "begin": lambda store: store.begin("k"),
    "put_part": lambda store: store.put_part("id:k", 1, 0, b"x", crc32c(b"x")),
}
OTHERS: dict[str, Callable[[ObjectStore], object]] = {
    **READS,
    "commit": lambda store: store.commit("id:k", [UploadedPart(1, 1, "e", 1)]),  # begins with a listing
}
ALL = OTHERS | WRITES
PAGE = b"<!doctype html><html lang=en><title>Console</title></html>"


@pytest.mark.parametrize("call", ALL)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_an_endpoint_that_only_redirects_is_asked_once_and_named(call: str, status: int) -> None:
    with answering(status, b"<html>moved</html>", root=ROOT, Location="https://elsewhere/k") as (store, asked):
        with pytest.raises(FatalError, match=r"correct storage\.endpoint .*https://elsewhere/k"):
            ALL[call](store)
        assert len(asked) == 1


@pytest.mark.parametrize("call", OTHERS)
@pytest.mark.parametrize("page", [b"", PAGE, b"{}", b"[]"], ids=["nothing", "a-page-for-people", "json", "list"])
def test_what_is_none_of_googles_answers_is_no_empty_bucket_and_no_object(call: str, page: bytes) -> None:
    with answering(200, page, root=ROOT) as (store, _), pytest.raises(FatalError, match=r"check storage\.endpoint"):
        OTHERS[call](store)


@pytest.mark.parametrize("call", WRITES)
@pytest.mark.parametrize("page", [b"", PAGE, b"{}", b"[]"], ids=["nothing", "a-page-for-people", "json", "list"])
def test_a_write_that_is_answered_so_may_have_happened(call: str, page: bytes) -> None:
    with answering(200, page, root=ROOT) as (store, _), pytest.raises(OutcomeUnknownError):
        WRITES[call](store)
