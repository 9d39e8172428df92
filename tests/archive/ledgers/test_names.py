"""Names in a stock broker's bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.metadata.stock_keys import LedgerKey, data_key, index_key, parse_key

from .support import UUID


@given(st.uuids(), st.integers(0, 2**63 - 1))
def test_keys_are_taken_apart(uuid, ledger) -> None:
    assert parse_key(data_key(str(uuid), ledger)) == LedgerKey(str(uuid), ledger, is_index=False)
    assert parse_key(index_key(str(uuid), ledger)) == LedgerKey(str(uuid), ledger, is_index=True)


@pytest.mark.parametrize(
    "key",
    [
        "x",
        UUID,
        f"{UUID}-index",
        f"{UUID}-ledger-",
        f"{UUID}-ledger-07",
        f"{UUID}-ledger-7-index2",
        f"a/{UUID}-ledger-7",
    ],
)
def test_other_keys_are_none_of_the_offloaders(key) -> None:
    assert parse_key(key) is None
