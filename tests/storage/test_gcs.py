"""Google Cloud Storage against a small server of ours, which keeps all of its conditions."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from offloader.errors import (
    AccessDeniedError,
    ConfigError,
    FatalError,
    PartRejectedError,
    StoreUnavailableError,
    UploadGoneError,
)
from offloader.ports.object_store import ObjectStore
from offloader.storage.gcs_requests import MultipartBody
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.storage.contract import StoreContract
from tests.storage.contract_gcs_faults import GcsFaultContract, compose, delete
from tests.storage.gcs_server import BUCKET, Google, google_in_memory
from tests.storage.proxy import Proxy, Rule
from tests.storage.servers import Stores, free_port
from tests.storage.subject import Subject, check_many_parts, noise, upload_parts

PIECE = 1024**2
COMPOSE_LIMIT = 32


@pytest.fixture
def server() -> Iterator[Google]:
    with google_in_memory() as google:
        yield google


@pytest.fixture
def root(server: Google) -> str:
    return server.fresh_root()


@pytest.fixture
def store(server: Google, root: str, stores: Stores) -> ObjectStore:
    return stores.open(server.settings(root))


class TestGoogle(StoreContract):
    @pytest.fixture
    def subject(self, server: Google, root: str, stores: Stores) -> Subject:
        settings = server.settings(root)
        return Subject(lambda: stores.open(settings), settings)

    @pytest.mark.parametrize("count", [COMPOSE_LIMIT, COMPOSE_LIMIT + 1, COMPOSE_LIMIT**2 + 1])
    def test_more_parts_than_one_request_composes(self, server: Google, store: ObjectStore, count: int) -> None:
        check_many_parts(store, count)
        assert len(server.objects) == 1


@pytest.mark.large
class TestGoogleWithFaults(GcsFaultContract):
    """And with all conditions."""

    def test_of_racing_commits_one_makes_the_object_and_all_succeed(
        self, server: Google, store: ObjectStore, direct: ObjectStore
    ) -> None:
        for i in range(10):
            upload = store.begin(f"k{i}")
            parts = upload_parts(store, upload, [b"one", b"two"])
            with ThreadPoolExecutor(4) as pool:
                made = {
                    stat.etag
                    for stat in pool.map(lambda at: at.commit(upload, parts), [store, direct] * 2)  # noqa: B023
                }
            assert len(made) == 1

    def test_a_commit_that_arrives_late_replaces_nothing(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore
    ) -> None:
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"ours"])
        theirs = direct.put("k", b"else", if_absent=True)
        with pytest.raises(UploadGoneError, match="another object"):
            store.commit(upload, parts)
        assert direct.stat("k") == theirs

    def test_a_lost_answer_of_a_commit_is_repeated_and_makes_the_object_once(
        self, proxy: Proxy, store: ObjectStore, server: Google
    ) -> None:
        upload = store.begin("k")
        parts = upload_parts(store, upload, [b"one", b"two"])
        proxy.add(Rule(compose))
        committed = store.commit(upload, parts)
        assert sum(compose(*request) for request in proxy.requests) == 2
        assert committed == store.stat("k")
        assert [name for _, name in server.objects] == [f"{store.url.removeprefix(f'gs://{BUCKET}/')}/k"]

    def test_what_is_written_again_right_before_its_deletion_stays_by_its_generation(
        self, proxy: Proxy, store: ObjectStore, direct: ObjectStore, server: Google
    ) -> None:
        found = direct.put("one", b"x")
        assert found is not None
        proxy.add(Rule(delete, unsent=True))  # between the look and the deletion
        matches = delete

        def replaced(method: str, path: str) -> bool:
            if matches(method, path):
                direct.put("one", b"y")
            return False

        proxy.add(Rule(replaced))
        assert not store.delete_if("one", found.etag)
        assert direct.read("one")[0] == b"y"


def test_an_upload_whose_parts_were_damaged_in_the_store_makes_no_object(
    server: Google, root: str, store: ObjectStore
) -> None:
    upload = store.begin("k")
    parts = upload_parts(store, upload, [b"one", b"two"])
    name = next(name for _, name in server.objects if "00002-" in name)
    good = server.objects[BUCKET, name]
    server.objects[BUCKET, name] = type(good)(b"TWO", good.resource)
    with pytest.raises(PartRejectedError):
        store.commit(upload, parts)
    assert store.stat("k") is None
    server.objects[BUCKET, name] = good
    store.commit(upload, parts)
    assert store.read("k")[0] == b"onetwo"


def test_a_bucket_that_keeps_everything_is_named_at_the_commit(server: Google, store: ObjectStore) -> None:
    upload = store.begin("k")
    parts = upload_parts(store, upload, [b"one"])
    server.retained = True
    with pytest.raises(FatalError, match="retention policy"):
        store.commit(upload, parts)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({}, False),
        ({"versioning": {"enabled": True}}, True),
        ({"softDeletePolicy": {"retentionDurationSeconds": "604800"}}, True),
        ({"softDeletePolicy": {"retentionDurationSeconds": "0"}}, False),
    ],
)
def test_what_is_deleted_stays_where_the_bucket_has_versions_or_soft_delete(
    server: Google, store: ObjectStore, told: dict[str, object], kept: bool
) -> None:
    server.buckets[BUCKET] = told
    assert store.keeps_versions() is kept


def test_a_role_that_may_not_look_at_the_bucket_is_told_nothing_of_it(
    server: Google, root: str, stores: Stores
) -> None:
    with Proxy(server.host, server.port, GcsFaultContract.wire.say) as proxy:
        store = stores.open(server.settings(root, endpoint=proxy.url))
        proxy.add(Rule(lambda _, path: path.partition("?")[0].endswith(f"/b/{BUCKET}"), status=403, code="forbidden"))
        assert store.keeps_versions() is None
        stores.close()


def test_a_listing_passes_over_the_parts_of_open_uploads(server: Google, store: ObjectStore) -> None:
    store.put("!first", b"1")
    store.put("last", b"2")
    for number in range(30):
        upload_parts(store, store.begin(f"k{number}"), [b"x"] * 40)
    buckets: list[str] = []
    listed = server.listed

    def counted(bucket: str, asked: dict[str, str]) -> dict[str, Any]:
        buckets.append(bucket)
        return listed(bucket, asked)

    server.listed = counted
    assert list(store.list()) == [("!first", 1), ("last", 1)]
    assert len(buckets) == 2
    assert list(store.folders()) == []


def test_parts_that_arrive_after_the_end_and_stay_are_listed(server: Google, root: str, store: ObjectStore) -> None:
    upload = store.begin("k")
    upload_parts(store, upload, [b"one"])
    server.objects = {at: each for at, each in server.objects.items() if not at[1].endswith("/open")}
    (found,) = store.list_uploads()
    assert (found.key, found.upload) == ("k", upload)
    store.abort(upload)
    assert server.objects == {}


def test_a_server_that_is_silent_is_noticed_by_the_timeout(stores: Stores) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = (("read_timeout", "0.3"), ("retry_deadline", "0.5"))
        store = stores.open(StoreSettings("gs://bucket/root", endpoint, options=options))
        for call in (lambda: store.stat("k"), lambda: store.read("k"), lambda: list(store.list())):
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError, match="timed out"):
                call()
            assert time.monotonic() - began < store.longest_call


def test_an_endpoint_may_end_with_a_slash(stores: Stores) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        options = (("read_timeout", "0.2"), ("retry_deadline", "0.1"))
        store = stores.open(StoreSettings("gs://bucket", endpoint, options=options))
        for call, path in (
            (store.stat, b"/storage/v1/b/bucket/o/k?"),
            (store.read, b"/download/storage/v1/b/bucket/o/k?"),
        ):
            with pytest.raises(StoreUnavailableError):
                call("k")
            with listening.accept()[0] as asked:
                assert asked.recv(4096).startswith(b"GET " + path)


def test_what_a_store_waits_for_is_what_s3_waits_for(stores: Stores) -> None:
    store = stores.open(StoreSettings("gs://bucket", "http://localhost:1"))
    assert store.longest_call == 2 * (60 + 5 + 30)


def test_without_credentials_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(AccessDeniedError, match="set GOOGLE_APPLICATION_CREDENTIALS") as caught:
        open_store(StoreSettings("gs://bucket/root"))
    assert "\n" not in str(caught.value)


def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Our credentials are those of one whose tokens come from a port of this machine."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    told = {"type": "service_account", "client_email": "a@b.c", "private_key": key.decode()}
    (tmp_path / "key.json").write_text(json.dumps(told | {"token_uri": f"http://127.0.0.1:{port}/token"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))


def test_who_gives_tokens_and_is_silent_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: Stores
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        service_account(tmp_path, monkeypatch, silent.getsockname()[1])
        options = (("read_timeout", "0.3"), ("retry_deadline", "0.2"), ("connect_timeout", "0.3"))
        store = stores.open(StoreSettings("gs://bucket/root", "https://localhost:1", options=options))
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="timed out"):
            store.stat("k")
        assert time.monotonic() - began < store.longest_call


def test_who_gives_tokens_may_be_away_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: Stores
) -> None:
    service_account(tmp_path, monkeypatch, free_port())
    store = stores.open(StoreSettings("gs://bucket/root", "https://localhost:1", options=(("retry_deadline", "0.2"),)))
    for call in (lambda: store.stat("k"), lambda: store.put("k", b"x", if_absent=True)):
        with pytest.raises(StoreUnavailableError, match="/token"):
            call()


def test_no_token_is_sent_to_an_endpoint_without_tls(monkeypatch: pytest.MonkeyPatch, stores: Stores) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    stores.open(StoreSettings("gs://bucket/root", "http://localhost:1"))
    with pytest.raises(AccessDeniedError):
        stores.open(StoreSettings("gs://bucket/root", "https://localhost:1"))


def test_a_part_is_checked_before_it_is_sent(store: ObjectStore) -> None:
    upload = store.begin("k")
    data = noise(9_000_000)
    part = store.put_part(upload, 1, 0, data, crc32c(data))
    assert store.commit(upload, [part]).size == len(data)
    assert store.read("k")[0] == data


def test_what_is_sent_is_not_copied_and_can_be_sent_again() -> None:
    data = noise(2 * PIECE + 5)
    body = MultipartBody({"name": "k", "contentType": "text/plain"}, data)
    for _ in range(2):
        _, *pieces, _ = sent = list(body)
        assert sum(len(piece) for piece in sent) == len(body)
        assert [len(piece) for piece in pieces] == [PIECE, PIECE, 5]
        assert all(isinstance(piece, memoryview) and piece.obj is data for piece in pieces)


def test_without_the_library_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "offloader.storage.gcs", None)
    with pytest.raises(ConfigError, match="extra gcs"):
        open_store(StoreSettings("gs://bucket/root"))


def test_what_google_keeps_is_shown(server: Google, store: ObjectStore) -> None:
    for key in ("free", "temporary", "event", "until"):
        store.put(key, b"x")
    until = "2100-01-01T00:00:00Z"
    said: dict[str, dict[str, object]] = {"temporary": {"temporaryHold": True}, "event": {"eventBasedHold": True}}
    said["until"] = {"retentionExpirationTime": until}
    for (_, name), stored in server.objects.items():
        stored.resource.update(said.get(name.rpartition("/")[2], {}))
    found = [store.stat(key) for key in ("free", "temporary", "event", "until")]
    shown = [(each.held, each.held_until) for each in found if each is not None]
    assert shown == [(False, 0), (True, 0), (True, 0), (False, 4_102_444_800_000)]
