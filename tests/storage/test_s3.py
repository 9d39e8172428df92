"""S3 against moto's server, which has the shape of the API and few of its checks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.storage.s3 import S3Store
from tests.storage.bench import Bench, upload_parts
from tests.storage.contract import StoreContract
from tests.storage.s3_faults import S3FaultContract
from tests.storage.servers import S3Server, Stores

PART_SIZE = 5 * 1024 * 1024


class TestMoto(StoreContract):
    @pytest.fixture
    def bench(self, moto: S3Server, stores: Stores) -> Bench:
        settings = moto.settings(moto.fresh_root())
        return Bench(lambda: stores.open(settings), settings, PART_SIZE)


class TestMotoWithFaults(S3FaultContract):
    @pytest.fixture
    def server(self, moto: S3Server) -> S3Server:
        return moto


@pytest.mark.parametrize(("payload_signing", "signed"), [("auto", True), ("always", True), ("never", False)])
def test_over_http_what_is_sent_is_signed_unless_the_operator_says_otherwise(
    moto: S3Server, stores: Stores, payload_signing: str, signed: bool
) -> None:
    settings = replace(moto.settings(moto.fresh_root()), options=(("payload_signing", payload_signing),))
    store = stores.open(settings)
    assert isinstance(store, S3Store)
    sent = []
    store._client.meta.events.register("before-send.s3.UploadPart", lambda request, **_: sent.append(request.headers))
    upload = store.begin("k")
    store.commit(upload, upload_parts(store, upload, [b"data"]))
    assert [headers["X-Amz-Content-SHA256"] != b"UNSIGNED-PAYLOAD" for headers in sent] == [signed]
    assert all("x-amz-checksum-crc32c" in headers for headers in sent)
    assert store.read("k")[0] == b"data"
