"""Reading ahead without threads: for seeded worlds in memory, which then are the same again, and wait for no thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.in_turn import in_turn


@pytest.fixture(autouse=True, scope="package")
def no_threads() -> Iterator[None]:
    """In all tests of this folder."""
    with in_turn():
        yield
