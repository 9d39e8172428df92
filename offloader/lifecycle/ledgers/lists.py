"""The ledger lists of all metadata stores, for whoever asks which offloaded copies they name."""

from __future__ import annotations

from offloader.errors import AccessDeniedError
from offloader.lifecycle.ledgers.objections import what_is_doubtful
from offloader.lifecycle.ledgers.reading import ReferenceReader
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.scanner import ClusterScanner


def read_references(scanner: ClusterScanner) -> tuple[References, ...]:
    """As they are now; no bookie is asked.

    Raises MetadataUnavailableError; AccessDeniedError where something may not be read: it might name any copy."""
    located = scanner.finder.locate()
    for store in located.stores:
        store.sync()
    found = tuple(ReferenceReader(store, lambda _: {}, scanner.said).read() for store in located.stores)
    doubts = what_is_doubtful(located)
    if doubts:
        raise AccessDeniedError(f"the ledger lists cannot be read as a whole: {doubts[0]}")
    return found
