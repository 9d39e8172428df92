"""Orphans in the stores of others: found by their clocks, deleted by their etags."""

from __future__ import annotations

import pytest

from integration.fake_gcs import GoogleServer
from offloader.ports.object_store import ObjectStore
from tests.lifecycle.bucket.contract_bucket import BucketContract
from tests.storage.servers import S3Server, Stores


@pytest.mark.versitygw
class TestVersitygw(BucketContract):
    @pytest.fixture
    def store(self, versitygw: S3Server, stores: Stores) -> ObjectStore:
        return stores.open(versitygw.settings(versitygw.fresh_root()))


@pytest.mark.fake_gcs
class TestFakeGcs(BucketContract):
    @pytest.fixture
    def store(self, fake_gcs: GoogleServer, stores: Stores) -> ObjectStore:
        return stores.open(fake_gcs.settings(fake_gcs.fresh_root()))
