"""What every store of a cloud must do when answers are lost, cut short or refusals: `class TestX(FaultContract)` with a
`wire`, which says how the service's requests look, and a fixture `server`."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pytest

from offloader.errors import BucketNotFoundError, OutcomeUnknownError, StoreUnavailableError
from offloader.ports.object_store import ObjectStore
from offloader.storage.settings import StoreSettings
from tests.storage.proxy import Proxy, Rule, Say
from tests.storage.servers import Stores, free_port
from tests.storage.subject import noise, upload_parts

FOR_EVER = 10_000
PATIENT_SECONDS, IMPATIENT_SECONDS = 60.0, 1.0

Matches = Callable[[str, str], bool]


class StoreServer(Protocol):
    """A server of the service, with a bucket."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @abstractmethod
    def fresh_root(self) -> str:
        """A prefix that nobody uses."""

    @abstractmethod
    def settings(self, root: str, *, endpoint: str | None = None, **options: str) -> StoreSettings:
        """How the root is reached, directly or through an endpoint."""


@dataclass(frozen=True)
class Wire:
    """How one service's requests look, and its refusals: `busy` (nothing happened), `broken` (nobody knows) and
    `changed` (a condition does not hold) are what a `Rule` needs to answer so."""

    scheme: str
    put: Matches
    get: Matches
    listing: Matches
    begin: Matches
    part: Matches
    complete: Matches
    delete: Matches
    busy: dict[str, Any]
    broken: dict[str, Any]
    changed: dict[str, Any]
    say: Say


def any_request(method: str, path: str) -> bool:
    return True


class FaultContract:
    """`store` and `impatient`, which soon gives up, go through the proxy, `direct` does not."""

    wire: ClassVar[Wire]

    @pytest.fixture
    def proxy(self, server: StoreServer) -> Iterator[Proxy]:
        with Proxy(server.host, server.port, self.wire.say) as proxy:
            yield proxy

    @pytest.fixture
    def root(self, server: StoreServer) -> str:
        return server.fresh_root()

    @pytest.fixture
    def direct(self, server: StoreServer, stores: Stores, root: str) -> ObjectStore:
        return stores.open(server.settings(root))

    @pytest.fixture
    def store(self, server: StoreServer, root: str, proxy: Proxy) -> Iterator[ObjectStore]:
        stores = Stores()
        yield stores.open(server.settings(root, endpoint=proxy.url, retry_deadline=str(PATIENT_SECONDS)))
        stores.close()  # before the proxy, which waits for its connections

    @pytest.fixture
    def impatient(self, server: StoreServer, root: str, proxy: Proxy) -> Iterator[ObjectStore]:
        stores = Stores()
        yield stores.open(server.settings(root, endpoint=proxy.url, retry_deadline=str(IMPATIENT_SECONDS)))
        stores.close()

    def test_a_create_whose_answer_is_lost_is_ours(self, proxy: Proxy, store: ObjectStore, direct: ObjectStore) -> None:
        lost = proxy.add(Rule(self.wire.put))
        written = store.put("slot", b"token", if_absent=True)
        assert lost.times == 0
        assert written == direct.stat("slot")

    def test_a_create_that_lost_its_answer_and_the_race_is_not_ours(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        direct.put("slot", b"theirs", if_absent=True)
        proxy.add(Rule(self.wire.put))
        assert store.put("slot", b"ours", if_absent=True) is None
        assert direct.read("slot")[0] == b"theirs"

    def test_a_write_without_any_answer_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        proxy.add(Rule(self.wire.put, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token", if_absent=True)
        assert direct.read("slot")[0] == b"token"

    def test_a_lost_answer_followed_by_refusals_is_unknown(self, proxy: Proxy, impatient: ObjectStore) -> None:
        proxy.add(Rule(self.wire.put))
        proxy.add(Rule(self.wire.put, times=FOR_EVER, **self.wire.busy))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("slot", b"token")

    def test_a_request_that_was_never_accepted_did_not_happen(
        self, server: StoreServer, stores: Stores, root: str
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
        proxy.add(Rule(self.wire.put, times=2, **self.wire.busy))
        assert store.put("slot", b"x") is not None
        proxy.add(Rule(self.wire.put, times=FOR_EVER, **self.wire.busy))
        before, began = len(proxy.requests), time.monotonic()
        with pytest.raises(StoreUnavailableError):
            impatient.put("slot", b"y")
        assert IMPATIENT_SECONDS / 2 < time.monotonic() - began < PATIENT_SECONDS
        assert 2 <= len(proxy.requests) - before <= 40

    def test_an_internal_error_leaves_a_write_unknown_and_a_read_unavailable(
        self, proxy: Proxy, impatient: ObjectStore
    ) -> None:
        proxy.add(Rule(any_request, times=FOR_EVER, **self.wire.broken))
        with pytest.raises(OutcomeUnknownError):
            impatient.put("k", b"x")
        with pytest.raises(StoreUnavailableError):
            impatient.read("k")

    def test_a_deletion_by_etag_whose_answer_is_lost_happened(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        found = direct.put("one", b"x")
        assert found is not None
        lost = proxy.add(Rule(self.wire.delete))
        assert store.delete_if("one", found.etag)
        assert lost.times == 0
        assert direct.stat("one") is None

    def test_what_is_written_again_right_before_its_deletion_by_etag_stays(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        found = direct.put("one", b"x")
        assert found is not None
        proxy.add(Rule(self.wire.delete, **self.wire.changed))
        assert not store.delete_if("one", found.etag)
        assert direct.stat("one") is not None

    def test_a_deletion_by_etag_without_any_answer_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        found = direct.put("one", b"x")
        assert found is not None
        proxy.add(Rule(self.wire.delete, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            impatient.delete_if("one", found.etag)
        assert direct.stat("one") is None

    def test_a_body_that_is_cut_short_is_read_again(self, proxy: Proxy, store: ObjectStore) -> None:
        data = noise(300_000)
        store.put("k", data)
        cut = proxy.add(Rule(self.wire.get, times=2, cut=100_000))
        assert store.read("k")[0] == data
        assert cut.times == 0
        proxy.add(Rule(self.wire.get, times=1, cut=10))
        assert store.read("k", 1000, 50_000)[0] == data[1000:51_000]

    def test_a_body_that_is_always_cut_short_is_an_error(self, proxy: Proxy, impatient: ObjectStore) -> None:
        impatient.put("k", noise(300_000))
        proxy.add(Rule(self.wire.get, times=FOR_EVER, cut=100_000))
        with pytest.raises(StoreUnavailableError):
            impatient.read("k")

    def test_a_listing_goes_on_after_a_lost_answer(self, proxy: Proxy, store: ObjectStore) -> None:
        store.put("k", b"x")
        lost = proxy.add(Rule(self.wire.listing, times=2))
        assert list(store.list()) == [("k", 1)]
        assert lost.times == 0

    def test_a_begin_that_was_refused_for_now_is_repeated(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        proxy.add(Rule(self.wire.begin, times=2, **self.wire.busy))
        upload = store.begin("k")
        assert [found.upload for found in direct.list_uploads()] == [upload]

    def test_a_part_whose_answer_is_lost_is_sent_again(self, proxy: Proxy, store: ObjectStore) -> None:
        upload = store.begin("k")
        proxy.add(Rule(self.wire.part))
        store.commit(upload, upload_parts(store, upload, [b"data"]))
        assert store.read("k")[0] == b"data"

    def test_a_commit_whose_answer_is_lost_happened(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"data"])
        lost = proxy.add(Rule(self.wire.complete))
        assert store.commit(upload, parts) == direct.stat("k")
        assert lost.times == 0

    def test_a_commit_without_any_answer_is_unknown(
        self, proxy: Proxy, impatient: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = impatient.begin("k")
        parts = upload_parts(impatient, upload, [b"data"])
        proxy.add(Rule(self.wire.complete, times=FOR_EVER))
        with pytest.raises(OutcomeUnknownError):
            impatient.commit(upload, parts)
        assert direct.commit(upload, parts) == direct.stat("k")

    def test_a_bucket_that_does_not_exist_is_named(self, server: StoreServer, stores: Stores) -> None:
        store = stores.open(server.settings(f"{self.wire.scheme}://no-such-bucket/root"))
        with pytest.raises(BucketNotFoundError, match="no-such-bucket"):
            store.put("k", b"x")
        with pytest.raises(BucketNotFoundError):
            list(store.list())
