"""Stores that are closed at a test's end. The contract before any S3 server is collected only where a variable names
one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.storage.servers import Stores

_SERVERS = {"test_any_s3.py": "OFFLOADER_TEST_S3"}
collect_ignore = [module for module, variable in _SERVERS.items() if variable not in os.environ]


@pytest.fixture
def stores() -> Iterator[Stores]:
    stores = Stores()
    yield stores
    stores.close()
