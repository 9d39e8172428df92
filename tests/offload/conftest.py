"""What a simulation reads ahead it reads in turn, as everything else it does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.in_turn import in_turn


@pytest.fixture(autouse=True, scope="package")
def no_threads() -> Iterator[None]:
    """In all tests of this folder."""
    with in_turn():
        yield
