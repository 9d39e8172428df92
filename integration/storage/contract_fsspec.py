"""What `FsspecStore` must do with a cloud's server: long and odd objects, lost answers, refusals. Only for stores
through fsspec, whose clients retry by themselves: `class TestX(StoreContract, FsspecCloudContract)`."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from offloader.errors import AccessDeniedError, BucketNotFoundError, OutcomeUnknownError, StoreUnavailableError
from offloader.ports.object_store import ObjectStore
from offloader.storage.settings import StoreSettings
from tests.storage.proxy import Proxy, Rule
from tests.storage.servers import Stores
from tests.storage.subject import Subject, check_many_parts, upload_parts

SEVERAL_REQUESTS = 70_000_000  # bytes; adlfs sends 64 MiB at a time


@dataclass(frozen=True)
class FsspecServer(ABC):
    """A server that a file system of fsspec knows, and a bucket in it."""

    host: str
    port: int
    bucket: str

    @abstractmethod
    def settings(self, *, bucket: str | None = None, endpoint: str | None = None) -> StoreSettings:
        """A root that nobody uses."""


def written(method: str, path: str) -> bool:
    return method in ("PUT", "POST")


def written_below(key: str, method: str, path: str) -> bool:
    return written(method, path) and (f"/{key}" in path or f"%2F{key}" in path)


class FsspecCloudContract:
    """`proxied` goes through a proxy that loses answers, `store` and `other` do not. Needs a fixture `server`."""

    @pytest.fixture
    def subject(self, server: FsspecServer, stores: Stores) -> Subject:
        settings = server.settings()
        return Subject(lambda: stores.open(settings), settings, keeps_meta=False)

    @pytest.fixture
    def proxy(self, server: FsspecServer) -> Iterator[Proxy]:
        with Proxy(server.host, server.port) as proxy:
            yield proxy

    @pytest.fixture
    def proxied(self, server: FsspecServer, stores: Stores, proxy: Proxy) -> ObjectStore:
        return stores.open(server.settings(endpoint=proxy.url))

    def test_a_create_whose_answer_is_lost_is_ours(self, proxy: Proxy, proxied: ObjectStore) -> None:
        lost = proxy.add(Rule(written))
        created = proxied.put("slot", b"token", if_absent=True)
        assert lost.times == 0
        assert created == proxied.stat("slot")
        assert sum(written(*request) for request in proxy.requests) == 2  # the client repeats it by itself

    def test_a_create_that_lost_its_answer_and_the_race_is_not_ours(self, proxy: Proxy, proxied: ObjectStore) -> None:
        proxied.put("slot", b"theirs", if_absent=True)
        proxy.add(Rule(written))
        assert proxied.put("slot", b"ours", if_absent=True) is None
        assert proxied.read("slot")[0] == b"theirs"

    def test_a_commit_whose_answer_is_lost_happened(self, proxy: Proxy, proxied: ObjectStore) -> None:
        upload = proxied.begin("object")
        parts = upload_parts(proxied, upload, [b"one", b"two"])
        lost = proxy.add(Rule(lambda method, path: written_below("object", method, path)))
        assert proxied.commit(upload, parts) == proxied.stat("object")
        assert lost.times == 0
        assert proxied.read("object")[0] == b"onetwo"

    def test_of_creators_of_long_objects_one_wins(self, store: ObjectStore, other: ObjectStore) -> None:
        contents = [bytes([65 + n]) * SEVERAL_REQUESTS for n in range(2)]
        with ThreadPoolExecutor(2) as pool:
            won = list(
                pool.map(lambda one, data: one.put("k", data, if_absent=True) is not None, [store, other], contents)
            )
        assert won.count(True) == 1
        assert store.read("k")[0] == contents[won.index(True)]
        assert store.put("k", contents[won.index(True)], if_absent=True) is not None

    def test_more_parts_than_one_request_composes(self, store: ObjectStore) -> None:
        check_many_parts(store, 100)

    def test_a_bucket_that_does_not_exist_is_named(self, server: FsspecServer, stores: Stores) -> None:
        absent = stores.open(server.settings(bucket=f"none-{uuid.uuid4().hex}"))
        for call in (lambda: absent.put("k", b"x", if_absent=True), lambda: absent.begin("k")):
            with pytest.raises(BucketNotFoundError, match=r"storage\.root") as caught:
                call()
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_refusal_is_not_repeated(self, proxy: Proxy, proxied: ObjectStore, status: int) -> None:
        proxy.add(Rule(lambda *_: True, times=10_000, status=status, code="Refused"))
        for call in (lambda: proxied.put("k", b"x"), lambda: proxied.stat("k"), lambda: list(proxied.list())):
            with pytest.raises(AccessDeniedError, match="credentials") as caught:
                call()
            assert "\n" not in str(caught.value)
        assert len(proxy.requests) <= 6

    def test_what_is_neither_done_nor_refused_is_unknown(self, proxy: Proxy, proxied: ObjectStore) -> None:
        proxy.add(Rule(lambda *_: True, times=10_000, status=409, code="Conflict"))
        with pytest.raises(OutcomeUnknownError):
            proxied.put("k", b"x", if_absent=True)
        with pytest.raises(StoreUnavailableError):
            list(proxied.list())
