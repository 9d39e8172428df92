"""S3 against moto's server, which has the shape of the API and few of its checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config as BotoConfig
from crc32c import crc32c

from offloader.errors import AccessDeniedError
from offloader.storage import s3_client
from offloader.storage.s3 import S3Store
from offloader.storage.s3_client import new_client
from offloader.storage.settings import StoreSettings
from tests.storage.contract import ObjectContract
from tests.storage.contract_copies import CopyContract
from tests.storage.contract_copy_faults import CopyFaultContract
from tests.storage.contract_uploads import UploadContract
from tests.storage.proxy import Proxy, Rule
from tests.storage.servers import Clients, S3Server, Stores
from tests.storage.subject import Subject, upload_parts

PART_SIZE = 5 * 1024 * 1024


class TestMoto(ObjectContract, UploadContract, CopyContract):
    """Not `EndedUploadContract`: moto answers 500 where an upload has ended, and takes any checksum for right. Nor
    `StrictCopyContract`: it copies whatever the etag, and what there is of a range."""

    @pytest.fixture
    def subject(self, moto: S3Server, stores: Stores) -> Subject:
        settings = moto.settings(moto.fresh_root())
        return Subject(
            lambda: stores.open(settings), settings, PART_SIZE, beside=lambda: stores.open(moto.bucket_beside())
        )


class TestMotoWithFaults(CopyFaultContract):
    @pytest.fixture
    def server(self, moto: S3Server) -> S3Server:
        return moto


class Nothing:
    """The body of an answer."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        return iter(())


@pytest.mark.parametrize("payload_signing", ["auto", "always", "never"])
@pytest.mark.parametrize("endpoint", ["http://s3.example", "https://s3.example", None])
def test_parts_are_not_signed_unless_the_operator_says_otherwise(
    stores: Stores, endpoint: str | None, payload_signing: str
) -> None:
    options = (("payload_signing", payload_signing),)
    store = stores.open(StoreSettings("s3://bucket/prefix", endpoint, "eu-west-1", "key", "secret", options))
    assert isinstance(store, S3Store)
    sent: list[Any] = []

    def answered(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        sent.append(request.headers)
        return AWSResponse(request.url, 200, {"ETag": '"etag"'}, Nothing())

    for client in set(Clients.of(store)):
        client.meta.events.register("before-send.s3", answered)
    store.put("small", b"data")
    plain = endpoint is not None and endpoint.startswith("http:")
    unsigned = payload_signing == "never" or (payload_signing == "auto" and not plain)
    assert (text(sent.pop()["X-Amz-Content-SHA256"]) == "UNSIGNED-PAYLOAD") == unsigned
    store.put_part("upload:key", 1, 0, b"data", crc32c(b"data"))
    (headers,) = sent
    signed = payload_signing == "always"
    expected = sha256(b"data").hexdigest() if signed else "UNSIGNED-PAYLOAD"
    assert text(headers["X-Amz-Content-SHA256"]) == expected
    assert "x-amz-checksum-crc32c" in headers


@pytest.mark.parametrize("status", [400, 403, 501])
def test_a_server_that_wants_bodies_signed_is_asked_only_once_without(
    moto: S3Server, stores: Stores, status: int
) -> None:
    store = stores.open(moto.settings(moto.fresh_root()))
    assert isinstance(store, S3Store)
    refused = []

    def refuse(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        assert text(request.headers["X-Amz-Content-SHA256"]) == "UNSIGNED-PAYLOAD"
        refused.append(request)
        return AWSResponse(request.url, status, {}, Nothing())

    Clients.of(store).unsigned.meta.events.register("before-send.s3.UploadPart", refuse)
    upload = store.begin("k")
    store.commit(upload, upload_parts(store, upload, [b"x" * PART_SIZE, b"y" * 100]))
    assert store.read("k")[0] == b"x" * PART_SIZE + b"y" * 100
    assert len(refused) == 1


def test_what_is_refused_either_way_proves_nothing(moto: S3Server, stores: Stores) -> None:
    store = stores.open(moto.settings(moto.fresh_root()))
    assert isinstance(store, S3Store)

    def refuse(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        return AWSResponse(request.url, 403, {}, Nothing())

    for client in Clients.of(store):
        client.meta.events.register("before-send.s3.UploadPart", refuse)
    with pytest.raises(AccessDeniedError):
        store.put_part("upload:k", 1, 0, b"data", crc32c(b"data"))
    assert store._part_client is Clients.of(store).unsigned


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize("payload_signing", ["always", "never"])
def test_a_server_takes_what_is_signed_and_what_is_not(moto: S3Server, stores: Stores, payload_signing: str) -> None:
    store = stores.open(replace(moto.settings(moto.fresh_root()), options=(("payload_signing", payload_signing),)))
    upload = store.begin("k")
    store.commit(upload, upload_parts(store, upload, [b"data"]))
    assert store.read("k")[0] == b"data"


def test_in_a_bucket_with_versioning_a_deletion_is_undone_by_removing_its_marker(
    moto: S3Server, stores: Stores
) -> None:
    """As docs/orphans.md has it."""
    settings = moto.settings("s3://versioned/root")
    client = new_client(settings, BotoConfig())
    client.create_bucket(Bucket="versioned")
    store = stores.open(settings)
    assert store.keeps_versions() is False
    client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
    assert store.keeps_versions() is True
    written = store.put("one", b"x")
    assert written is not None
    assert store.delete_if("one", written.etag)
    assert store.stat("one") is None
    (marker,) = client.list_object_versions(Bucket="versioned", Prefix="root/one")["DeleteMarkers"]
    client.delete_object(Bucket="versioned", Key="root/one", VersionId=marker["VersionId"])
    assert store.read("one")[0] == b"x"
    client.close()


def test_what_object_lock_keeps_is_shown(moto: S3Server, stores: Stores) -> None:
    """A deletion would be answered with success: a marker hides the locked version."""
    settings = moto.settings("s3://locked/root")
    client = new_client(settings, BotoConfig())
    client.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    store = stores.open(settings)
    for key in ("free", "held", "until"):
        store.put(key, b"x")
    client.put_object_legal_hold(Bucket="locked", Key="root/held", LegalHold={"Status": "ON"})
    until = datetime(2100, 1, 1, tzinfo=UTC)
    retention = {"Mode": "GOVERNANCE", "RetainUntilDate": until}
    client.put_object_retention(Bucket="locked", Key="root/until", Retention=retention)
    found = [store.stat(key) for key in ("free", "held", "until")]
    client.close()
    shown = [(each.held, each.held_until) for each in found if each is not None]
    assert shown == [(False, 0), (True, 0), (False, int(until.timestamp() * 1000))]


def test_a_role_that_may_not_ask_for_versioning_is_told_nothing_of_it(moto: S3Server, stores: Stores) -> None:
    with Proxy(moto.host, moto.port) as proxy:
        store = stores.open(moto.settings(moto.fresh_root(), endpoint=proxy.url))
        proxy.add(Rule(lambda _, path: "versioning" in path, status=403, code="AccessDenied"))
        assert store.keeps_versions() is None
        proxy.add(Rule(lambda _, path: "versioning" in path, status=501, code="NotImplemented"))
        assert store.keeps_versions() is None


def test_credentials_that_are_renewed_in_the_shared_file_are_read_again(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"

    def renew(key: str) -> None:
        fresh = tmp_path / "fresh"
        fresh.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")
        fresh.rename(file)

    renew("first")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    s3_client._session.cache_clear()
    try:
        store = stores.open(StoreSettings("s3://bucket/prefix", "http://s3.example", "eu-west-1"))
    finally:
        s3_client._session.cache_clear()
    assert isinstance(store, S3Store)
    signed = []

    def answered(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        signed.append(text(request.headers["Authorization"]).partition("Credential=")[2].partition("/")[0])
        return AWSResponse(request.url, 200, {"ETag": '"etag"'}, Nothing())

    Clients.of(store).signed.meta.events.register("before-send.s3.PutObject", answered)
    store.put("k", b"x")
    renew("second")
    store.put("k", b"x")
    file.write_text("[default\n")  # half written
    store.put("k", b"x")
    renew("third")
    store.put("k", b"x")
    assert signed == ["first", "second", "second", "third"]
