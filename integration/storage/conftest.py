"""Stores that are closed at a test's end. Tests of clouds are collected only where a variable names a server for
them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.storage.servers import Stores

_SERVERS = {"test_azure.py": "OFFLOADER_TEST_AZURE"}
collect_ignore = [module for module, variable in _SERVERS.items() if variable not in os.environ]


@pytest.fixture
def stores() -> Iterator[Stores]:
    stores = Stores()
    yield stores
    stores.close()
