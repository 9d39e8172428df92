"""Google Cloud Storage's client with an emulator. Collected where OFFLOADER_TEST_GOOGLE is its URL:
docs/testing.md."""

from __future__ import annotations

import os
import socket
import uuid
from urllib.parse import urlsplit

import httpx
import pytest

from integration.storage.contract_fsspec import FsspecCloudContract, FsspecServer
from offloader.errors import BucketNotFoundError, StoreUnavailableError
from offloader.storage.settings import StoreSettings
from tests.storage.contract import StoreContract
from tests.storage.servers import Stores

URL = os.environ["OFFLOADER_TEST_GOOGLE"]


class Google(FsspecServer):
    def settings(self, *, bucket: str | None = None, endpoint: str | None = None, **options: str) -> StoreSettings:
        chosen = {"endpoint_url": endpoint or URL, "token": "anon", **options}
        return StoreSettings(f"gs://{bucket or self.bucket}/{uuid.uuid4().hex}", options=tuple(chosen.items()))


@pytest.fixture(scope="module")
def server() -> Google:
    bucket = f"test-{uuid.uuid4().hex}"
    httpx.post(f"{URL}/storage/v1/b?project=test", json={"name": bucket}).raise_for_status()
    url = urlsplit(URL)
    return Google(str(url.hostname), int(url.port or 80), bucket)


class TestGoogle(StoreContract, FsspecCloudContract):
    def test_a_bucket_that_does_not_exist_is_not_empty(self, server: Google, stores: Stores) -> None:
        with pytest.raises(BucketNotFoundError, match=r"storage\.root"):
            list(stores.open(server.settings(bucket=f"none-{uuid.uuid4().hex}")).list())

    def test_a_server_that_is_silent_is_not_waited_for(self, server: Google, stores: Stores) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
            store = stores.open(server.settings(endpoint=endpoint, requests_timeout="1"))
            with pytest.raises(StoreUnavailableError, match="TimeoutError"):
                store.stat("k")
