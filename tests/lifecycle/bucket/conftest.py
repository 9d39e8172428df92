"""Scans of a bucket in memory, whose calls come in the same order again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.in_turn import in_turn


@pytest.fixture(autouse=True, scope="package")
def no_threads() -> Iterator[None]:
    """In all tests of this folder."""
    with in_turn("lifecycle.bucket.scan", "lifecycle.bucket.stock"):
        yield
