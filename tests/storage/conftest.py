"""moto's server: the shape of S3's API, in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.storage.servers import S3Server, Stores, free_port, serving


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, port, tmp_path_factory.mktemp("moto") / "log") as server:
        yield server


@pytest.fixture
def stores() -> Iterator[Stores]:
    stores = Stores()
    yield stores
    stores.close()
