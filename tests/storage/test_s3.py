"""S3 against moto's server, which has the shape of the API and few of its checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config as BotoConfig
from crc32c import crc32c

from offloader.storage.s3 import S3Store
from offloader.storage.s3_client import new_client
from offloader.storage.settings import StoreSettings
from tests.storage.contract import ObjectContract
from tests.storage.contract_copies import CopyContract
from tests.storage.contract_copy_faults import CopyFaultContract
from tests.storage.contract_uploads import UploadContract
from tests.storage.proxy import Proxy, Rule
from tests.storage.servers import S3Server, Stores
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
def test_what_tls_protects_is_not_signed_unless_the_operator_says_otherwise(
    stores: Stores, endpoint: str | None, payload_signing: str
) -> None:
    options = (("payload_signing", payload_signing),)
    store = stores.open(StoreSettings("s3://bucket/prefix", endpoint, "eu-west-1", "key", "secret", options))
    assert isinstance(store, S3Store)
    sent = []

    def answered(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        sent.append(request.headers)
        return AWSResponse(request.url, 200, {"ETag": '"etag"'}, Nothing())

    store._client.meta.events.register("before-send.s3.UploadPart", answered)
    store.put_part("upload:key", 1, 0, b"data", crc32c(b"data"))
    (headers,) = sent
    plain = endpoint is not None and endpoint.startswith("http:")
    signed = payload_signing == "always" or (payload_signing == "auto" and plain)
    expected = sha256(b"data").hexdigest() if signed else "UNSIGNED-PAYLOAD"
    assert text(headers["X-Amz-Content-SHA256"]) == expected
    assert "x-amz-checksum-crc32c" in headers


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


def test_a_role_that_may_not_ask_for_versioning_is_told_nothing_of_it(moto: S3Server, stores: Stores) -> None:
    with Proxy(moto.host, moto.port) as proxy:
        store = stores.open(moto.settings(moto.fresh_root(), endpoint=proxy.url))
        proxy.add(Rule(lambda _, path: "versioning" in path, status=403, code="AccessDenied"))
        assert store.keeps_versions() is None
        proxy.add(Rule(lambda _, path: "versioning" in path, status=501, code="NotImplemented"))
        assert store.keeps_versions() is None
