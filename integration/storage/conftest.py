"""Stores that are closed at a test's end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.servers import Stores


@pytest.fixture
def stores() -> Iterator[Stores]:
    stores = Stores()
    yield stores
    stores.close()
