"""versitygw for the stores' tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from integration import versitygw as server
from tests.storage.servers import S3Server, Stores


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("OFFLOADER_SKIP_VERSITYGW") != "1":
        return
    for item in items:
        if item.get_closest_marker("versitygw"):
            item.add_marker(pytest.mark.skip(reason="OFFLOADER_SKIP_VERSITYGW=1"))


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with server.running(tmp_path_factory.mktemp("versitygw")) as running:
        yield running


@pytest.fixture
def stores() -> Iterator[Stores]:
    stores = Stores()
    yield stores
    stores.close()
