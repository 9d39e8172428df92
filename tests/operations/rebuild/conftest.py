"""Rebuilds of seeded histories in memory, whose faults come at the same call again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.in_turn import in_turn


@pytest.fixture(autouse=True, scope="package")
def no_threads() -> Iterator[None]:
    """In all tests of this folder."""
    with in_turn("metadata.catalog", "operations.rebuild.gather", "operations.rebuild.write"):
        yield
