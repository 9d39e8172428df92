"""Orphans in S3: found by its clock, deleted by their ETags."""

from __future__ import annotations

import pytest

from offloader.ports.object_store import ObjectStore
from tests.lifecycle.bucket.contract_bucket import BucketContract
from tests.storage.servers import S3Server, Stores

pytestmark = pytest.mark.versitygw


class TestVersitygw(BucketContract):
    @pytest.fixture
    def store(self, versitygw: S3Server, stores: Stores) -> ObjectStore:
        return stores.open(versitygw.settings(versitygw.fresh_root()))
