"""Entries of aborted transactions, which ledgers that were copied complete hold and consumers never get."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from offloader.archive.items import EntryRun
from offloader.archive.messages.entries import Entries, entries_of
from offloader.archive.messages.envelope import parse_envelope
from offloader.archive.messages.envelopes import parse_envelopes
from offloader.errors import DamagedObjectError
from offloader.format.entry import transaction_of
from offloader.model import EntryRange, Transaction

_MOST, _LEAST = "txnid_most_bits", "txnid_least_bits"
_UINT64 = (1 << 64) - 1


def committed(run: EntryRun, aborted: Collection[Transaction]) -> Iterator[EntryRun]:
    """The run without entries of these transactions."""
    numbers = _entries_of(entries_of(run), aborted) if aborted and run.count else ()
    theirs = (EntryRange.closed(run.ledger, run.first + number, run.first + number) for number in numbers)
    for left in EntryRange(run.ledger, run.first, run.after).without(theirs):
        yield run.part(left.first, left.after)


def _entries_of(entries: Entries, transactions: Collection[Transaction]) -> Iterator[int]:
    """The numbers of the entries that belong to these transactions."""
    envelopes = parse_envelopes(entries, {_MOST, _LEAST})
    most, least = envelopes.metadata.number(_MOST), envelopes.metadata.number(_LEAST)
    for number in np.flatnonzero(envelopes.irregular | envelopes.metadata.has(_MOST)).tolist():
        irregular = envelopes.irregular[number]
        found = (
            _parsed(entries.bytes(number)) if irregular else (int(most[number]) & _UINT64, int(least[number]) & _UINT64)
        )
        if found in transactions:
            yield number


def _parsed(entry: memoryview) -> Transaction | None:
    try:
        return transaction_of(parse_envelope(entry).metadata)
    except DamagedObjectError:  # whoever unpacks it will tell
        return None
