"""S3 against versitygw, which checks what moto lets pass: checksums, signatures, uploads that are gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from boto3.session import Session

from offloader.errors import AccessDeniedError, PartRejectedError
from offloader.ports.object_store import ObjectStore
from offloader.storage.settings import StoreSettings
from tests.storage.contract import StoreContract
from tests.storage.contract_copies import CopyContract, StrictCopyContract
from tests.storage.contract_copy_faults import CopyFaultContract
from tests.storage.servers import ACCESS_KEY, REGION, SECRET_KEY, S3Server, Stores
from tests.storage.subject import Subject, upload_parts

pytestmark = pytest.mark.versitygw

MIB = 1024 * 1024


class TestVersitygw(StoreContract, CopyContract, StrictCopyContract):
    @pytest.fixture
    def subject(self, versitygw: S3Server, stores: Stores) -> Subject:
        settings = versitygw.settings(versitygw.fresh_root())
        return Subject(
            lambda: stores.open(settings), settings, 5 * MIB, beside=lambda: stores.open(versitygw.bucket_beside())
        )

    def test_a_listing_of_several_pages_is_whole(self, store: ObjectStore) -> None:
        keys = [f"page/{i:05}" for i in range(1100)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), keys))
        assert [key for key, _ in store.list()] == keys
        assert [key for key, _ in store.list("page/", "page/00041")] == keys[42:]
        store.delete(keys)
        assert list(store.list()) == []

    def test_what_is_not_signed_is_taken_too(self, subject: Subject, stores: Stores) -> None:
        assert subject.settings is not None
        store = stores.open(replace(subject.settings, options=(("payload_signing", "never"),)))
        store.put("small", b"x")
        upload = store.begin("k")
        store.commit(upload, upload_parts(store, upload, [b"data"]))
        assert (store.read("small")[0], store.read("k")[0]) == (b"x", b"data")

    def test_a_part_named_with_another_checksum_is_refused(self, store: ObjectStore) -> None:
        upload = store.begin("k")
        (part,) = upload_parts(store, upload, [b"data"])
        with pytest.raises(PartRejectedError):
            store.commit(upload, [type(part)(part.number, part.size, part.etag, part.crc32c ^ 1)])

    def test_content_types_are_those_of_pulsar(self, versitygw: S3Server, subject: Subject, store: ObjectStore) -> None:
        store.put("uuid-index", b"x")
        upload = store.begin("uuid")
        store.commit(upload, upload_parts(store, upload, [b"x"]))
        bucket, _, prefix = str(subject.settings and subject.settings.root).removeprefix("s3://").partition("/")
        client = Session().client(
            "s3",
            endpoint_url=versitygw.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        types = [
            client.head_object(Bucket=bucket, Key=f"{prefix}/{key}")["ContentType"] for key in ("uuid-index", "uuid")
        ]
        client.close()
        assert types == ["application/octet-stream", "application/unknown"]

    @pytest.mark.parametrize("wrong", ["key", "secret"])
    def test_wrong_credentials_are_refused(self, versitygw: S3Server, stores: Stores, wrong: str) -> None:
        keys = ("nobody", SECRET_KEY) if wrong == "key" else (ACCESS_KEY, "not the secret")
        store = stores.open(StoreSettings(versitygw.fresh_root(), versitygw.url, REGION, *keys))
        with pytest.raises(AccessDeniedError, match="credentials"):
            store.put("k", b"x")
        with pytest.raises(AccessDeniedError, match="credentials"):
            list(store.list())


class TestVersitygwWithFaults(CopyFaultContract):
    @pytest.fixture
    def server(self, versitygw: S3Server) -> S3Server:
        return versitygw
