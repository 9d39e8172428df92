"""Entries of a ledger from its bookies, in order."""

from offloader.bookkeeper.reading.ledger_reader import LedgerReader, Slowness

__all__ = ["LedgerReader", "Slowness"]
