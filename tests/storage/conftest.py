"""moto's server: the shape of S3's API, in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.servers import S3Server, Stores, moto_server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def stores() -> Iterator[Stores]:
    stores = Stores()
    yield stores
    stores.close()
