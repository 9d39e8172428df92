"""Records that BookKeeper's and Pulsar's own classes wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from offloader.bookkeeper.metadata_codec import decode_metadata, encode_metadata
from offloader.bookkeeper.model import DigestType, Fragment, LedgerMetadata, LedgerState
from offloader.model import AcknowledgedRange
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.managed_ledger_codec import decode_managed_ledger
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import decode_cursor_node
from tests.fakes.ledger_metadata import Compression

LINES = (Path(__file__).parents[1] / "fixtures" / "metadata_records.txt").read_text().splitlines()[1:]
RECORDS = {(what, form): bytes.fromhex(data) for what, form, data in map(str.split, LINES)}

METADATA = LedgerMetadata(
    3,
    3,
    2,
    LedgerState.OPEN,
    (Fragment(0, ("127.0.0.1:3181", "bookie-1", "bookie-2")), Fragment(17, ("127.0.0.1:3181", "bookie-3", "bookie-2"))),
    DigestType.CRC32C,
    's\0é\n"'.encode(),
    created_ms=1700000000000,
    custom={"application": b"pulsar"},
)


@pytest.mark.parametrize("version", [2, 3])
def test_a_ledger_is_read_and_closed_byte_for_byte_as_bookkeeper_does(version):
    metadata = decode_metadata(RECORDS["open", str(version)])
    assert metadata == replace(METADATA, format_version=version)
    closed = replace(metadata, state=LedgerState.CLOSED, last_entry=41, length=4242)
    assert encode_metadata(closed) == RECORDS["closed", str(version)]
    assert decode_metadata(RECORDS["closed", str(version)]) == closed


@pytest.mark.parametrize("form", Compression.keys())
def test_a_ledger_list_is_read(form):
    record = RECORDS["list", form]
    ledgers = (
        ListedLedger(100, 50, 5000, 1700000000000),
        ListedLedger(107, 51, 5001, 1700000000001),
        ListedLedger(114, 52, 5002, 1700000000002),
        ListedLedger(121),
    )
    assert decode_managed_ledger(record, 4) == ManagedLedger(ledgers, 4)


@pytest.mark.parametrize("form", Compression.keys())
def test_a_cursor_is_read(form):
    assert decode_cursor_node(RECORDS["cursor", form]) == CursorState(
        (107, 12), (AcknowledgedRange((107, 13), (107, 20)),), last_active_ms=1700000000009
    )
