"""Nodes as a scan reads them: damage is a value."""

from __future__ import annotations

from offloader.lifecycle.ledgers.decoding import decode_last_entry, decode_locator, decode_references, or_unreadable
from offloader.state.managed_ledger_codec import decode_managed_ledger


def read_list(value, version, created_ms=None, born=None):
    return or_unreadable(lambda: decode_managed_ledger(value, version, created_ms=created_ms, born=born), version)


def read_cursor(value, version, created_ms=None, born=None):
    return or_unreadable(lambda: decode_references(value, version, created_ms=created_ms, born=born), version)


def read_locator(value, version, created_ms=None, born=None):
    return or_unreadable(lambda: decode_locator(value, version, created_ms=created_ms, born=born), version)


def read_last_entry(payload, cursor_ledger):
    return or_unreadable(lambda: decode_last_entry(payload, cursor_ledger), cursor_ledger)
