"""Google Cloud Storage's client against fake-gcs-server, over real connections."""

from __future__ import annotations

import pytest

from integration.fake_gcs import GoogleServer
from tests.storage.contract import StoreContract
from tests.storage.contract_gcs_faults import GcsFaultContract
from tests.storage.servers import Stores
from tests.storage.subject import Subject, check_many_parts

pytestmark = pytest.mark.fake_gcs


class TestFakeGcs(StoreContract):
    @pytest.fixture
    def subject(self, fake_gcs: GoogleServer, stores: Stores) -> Subject:
        settings = fake_gcs.settings(fake_gcs.fresh_root())
        return Subject(lambda: stores.open(settings), settings)

    def test_more_parts_than_one_request_composes(self, store):
        check_many_parts(store, 100)


class TestFakeGcsWithFaults(GcsFaultContract):
    @pytest.fixture
    def server(self, fake_gcs: GoogleServer) -> GoogleServer:
        return fake_gcs
