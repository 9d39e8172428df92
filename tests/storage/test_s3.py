"""S3 against moto's server, which has the shape of the API and few of its checks."""

from __future__ import annotations

import pytest

from tests.storage.bench import Bench
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
