"""Azure Blob Storage's client with an emulator. Collected where OFFLOADER_TEST_AZURE is a connection string:
docs/testing.md."""

from __future__ import annotations

import os
import re
import uuid
from urllib.parse import urlsplit

import fsspec
import pytest

from integration.storage.contract_fsspec import FsspecCloudContract, FsspecServer
from offloader.errors import AccessDeniedError, FatalError
from offloader.ports.object_store import ObjectStore
from offloader.storage.settings import StoreSettings
from tests.storage.contract import KEYS, StoreContract
from tests.storage.servers import Stores

CONNECTION = os.environ["OFFLOADER_TEST_AZURE"]
URL = urlsplit(re.findall("BlobEndpoint=([^;]+)", CONNECTION)[0])


class Azure(FsspecServer):
    def settings(self, *, bucket: str | None = None, endpoint: str | None = None) -> StoreSettings:
        connection = CONNECTION.replace(f"http://{URL.netloc}", endpoint or f"http://{URL.netloc}")
        return StoreSettings(
            f"abfs://{bucket or self.bucket}/{uuid.uuid4().hex}", options=(("connection_string", connection),)
        )


@pytest.fixture(scope="module")
def server() -> Azure:
    bucket = f"test-{uuid.uuid4().hex}"
    fsspec.filesystem("abfs", connection_string=CONNECTION).mkdir(bucket)
    return Azure(str(URL.hostname), int(URL.port or 80), bucket)


class TestAzure(StoreContract, FsspecCloudContract):
    @pytest.mark.parametrize("key", [key.replace("?", "") for key in KEYS])
    def test_keys_are_kept_character_by_character(self, store: ObjectStore, key: str) -> None:
        super().test_keys_are_kept_character_by_character(store, key)

    def test_a_key_that_adlfs_would_change_is_refused(self, store: ObjectStore) -> None:
        with pytest.raises(FatalError, match="adlfs"):
            store.put("a?b", b"x")

    def test_a_wrong_key_is_refused(self, server: Azure, stores: Stores) -> None:
        settings = server.settings()
        wrong = re.sub("AccountKey=....", "AccountKey=AAAA", settings.options[0][1])
        store = stores.open(StoreSettings(settings.root, options=(("connection_string", wrong),)))
        for call in (lambda: store.put("k", b"x"), lambda: store.stat("k"), lambda: list(store.list())):
            with pytest.raises(AccessDeniedError, match="credentials"):
                call()
