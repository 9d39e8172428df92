"""The contract before any S3 server. Collected where OFFLOADER_TEST_S3 is a root, `s3://bucket/prefix`, that may be
written to: docs/stores.md."""

from __future__ import annotations

import os
import uuid

import pytest

from offloader.model import MIB
from offloader.storage.settings import StoreSettings
from tests.storage.contract import StoreContract
from tests.storage.contract_copies import CopyContract
from tests.storage.servers import Stores
from tests.storage.subject import Subject

ROOT = os.environ["OFFLOADER_TEST_S3"]
ENDPOINT = os.environ.get("OFFLOADER_TEST_S3_ENDPOINT")
PART = 5 * MIB


class TestAnyS3(StoreContract, CopyContract):
    @pytest.fixture
    def subject(self, stores: Stores) -> Subject:
        settings, beside = _fresh(), _fresh()
        return Subject(lambda: stores.open(settings), settings, PART, beside=lambda: stores.open(beside))


def _fresh() -> StoreSettings:
    return StoreSettings(f"{ROOT.rstrip('/')}/{uuid.uuid4().hex}", ENDPOINT)
