"""Entries of a ledger from its bookies, in order."""

from offloader.bookkeeper.reading.ledger_reader import LedgerReader
from offloader.bookkeeper.reading.slowness import Slowness

__all__ = ["LedgerReader", "Slowness"]
