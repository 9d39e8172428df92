"""Where a ledger's node is. The paths are those that BookKeeper 4.17.2 gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bookkeeper.layout import Layout, decode_layout, encode_layout, ledger_path
from offloader.errors import DamagedRecordError, FatalError, LedgerNotFoundError

from .damage import damaged, refusal

PACKAGE = "org.apache.bookkeeper.meta"


@pytest.mark.parametrize(
    ("layout", "ledger", "path"),
    [
        (Layout.FLAT, 15, "/L0000000015"),
        (Layout.FLAT, 12345678901, "/L12345678901"),
        (Layout.HIERARCHICAL, 0, "/00/0000/L0000"),
        (Layout.HIERARCHICAL, 15, "/00/0000/L0015"),
        (Layout.HIERARCHICAL, 1234567890, "/12/3456/L7890"),
        (Layout.HIERARCHICAL, 2**31 - 2, "/21/4748/L3646"),
        (Layout.HIERARCHICAL, 2**31 - 1, "/000/0000/0021/4748/L3647"),
        (Layout.HIERARCHICAL, 2**31, "/000/0000/0021/4748/L3648"),
        (Layout.HIERARCHICAL, 2**63 - 1, "/922/3372/0368/5477/L5807"),
        (Layout.LEGACY_HIERARCHICAL, 2**31, "/21/4748/L3648"),
        (Layout.LONG_HIERARCHICAL, 15, "/000/0000/0000/0000/L0015"),
    ],
)
def test_paths(layout, ledger, path):
    assert ledger_path(layout, ledger) == path


@given(st.sampled_from(Layout), st.integers(0, 10**10 - 1), st.integers(0, 10**10 - 1))
def test_each_ledger_has_a_path_of_its_own(layout, a, b):
    assert (ledger_path(layout, a) == ledger_path(layout, b)) == (a == b)


@pytest.mark.parametrize(
    ("layout", "ledger"),
    [(Layout.FLAT, -1), (Layout.HIERARCHICAL, -1), (Layout.HIERARCHICAL, 2**63), (Layout.LEGACY_HIERARCHICAL, 10**10)],
)
def test_ids_that_no_ledger_can_have(layout, ledger):
    with pytest.raises(LedgerNotFoundError, match=f"no ledger can have the id {ledger}"):
        ledger_path(layout, ledger)


@pytest.mark.parametrize("layout", Layout)
def test_a_layout_is_read_back(layout):
    assert decode_layout(encode_layout(layout)) is layout


@pytest.mark.parametrize(
    ("data", "layout"),
    [
        (f"2\n{PACKAGE}.HierarchicalLedgerManagerFactory:1", Layout.HIERARCHICAL),
        (f"2\n{PACKAGE}.LongHierarchicalLedgerManagerFactory:1", Layout.LONG_HIERARCHICAL),
        (f"2\n{PACKAGE}.FlatLedgerManagerFactory:1\n", Layout.FLAT),
        (f"1\n{PACKAGE}.LegacyHierarchicalLedgerManagerFactory:1", Layout.LEGACY_HIERARCHICAL),
    ],
)
def test_what_bookkeeper_writes_is_read(data, layout):
    assert decode_layout(data.encode()) is layout


@pytest.mark.parametrize("data", [f"2\n{PACKAGE}.MSLedgerManagerFactory:1", f"3\n{PACKAGE}.FlatLedgerManagerFactory:1"])
def test_other_layouts_are_refused(data):
    with pytest.raises(FatalError, match="not supported"):
        decode_layout(data.encode())


@given(damaged(encode_layout(Layout.HIERARCHICAL)))
def test_damage_is_a_typed_error(data):
    refusal(lambda: decode_layout(data), DamagedRecordError, FatalError)
