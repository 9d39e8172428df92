"""What `WebHdfsStore` says of an address where no namenode answers: one line, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from offloader.errors import AccessDeniedError, FatalError, OutcomeUnknownError, StoreUnavailableError
from offloader.ports.object_store import ObjectStore
from offloader.storage.settings import StoreSettings
from tests.storage.proxy import Proxy, Rule, json_as_told
from tests.storage.servers import Stores, free_port

PAGE = "<html></html>"
CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "read": lambda store: store.read("k"),
    "stat": lambda store: store.stat("k"),
    "list": lambda store: list(store.list()),
    "list_uploads": lambda store: list(store.list_uploads()),
    "put": lambda store: store.put("k", b"x", if_absent=True),
    "begin": lambda store: store.begin("k"),
    "put_part": lambda store: store.put_part("id:k", 1, 0, b"", 0),
}


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy("127.0.0.1", free_port(), json_as_told) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Proxy) -> Iterator[ObjectStore]:
    stores = Stores()
    yield stores.open(StoreSettings(f"webhdfs://{urlsplit(proxy.url).netloc}/a", options=(("retry_deadline", "0.2"),)))
    stores.close()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("rule", [{"status": 200, "code": PAGE}, {"status": 404}, {"status": 404, "code": "[]"}])
def test_an_answer_of_something_else_is_told_with_the_setting(
    proxy: Proxy, store: ObjectStore, call: str, rule: dict[str, object]
) -> None:
    proxy.add(Rule(lambda *_: True, times=10_000, **rule))
    with pytest.raises(FatalError, match=r"storage\.root") as caught:
        CALLS[call](store)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("json", ["{}", '{"FileStatus": {"type": "FILE"}}', '{"DirectoryListing": {}}', "[1]"])
def test_an_answer_that_says_nothing_is_no_absence(proxy: Proxy, store: ObjectStore, json: str) -> None:
    proxy.add(Rule(lambda *_: True, times=10_000, status=200, code=json))
    for call in ("stat", "read", "list", "list_uploads"):
        with pytest.raises(StoreUnavailableError):
            CALLS[call](store)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_without_a_word_is_one_of_credentials(proxy: Proxy, store: ObjectStore, status: int) -> None:
    proxy.add(Rule(lambda *_: True, times=10_000, status=status))
    for call in CALLS.values():
        with pytest.raises(AccessDeniedError, match="options user") as caught:
            call(store)
        assert "\n" not in str(caught.value)


def test_a_deletion_that_something_else_answers_is_unknown(proxy: Proxy, store: ObjectStore) -> None:
    proxy.add(Rule(lambda *_: True, times=10_000, status=200, code=PAGE))
    with pytest.raises(OutcomeUnknownError):
        store.delete(["k"])


def test_an_empty_answer_is_none_of_a_namenode(proxy: Proxy, store: ObjectStore) -> None:
    proxy.add(Rule(lambda *_: True, times=10_000, status=200, empty=True))
    with pytest.raises(StoreUnavailableError):
        store.stat("k")
