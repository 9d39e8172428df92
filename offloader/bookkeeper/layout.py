"""Where a ledger's node is in BookKeeper's tree. Pure.

As in BookKeeper 4.17: the class that `LAYOUT` names says it; the hierarchical one has long paths from 2^31 - 1 on.
"""

from __future__ import annotations

import re
from enum import Enum

from offloader.errors import DamagedRecordError, FatalError, LedgerNotFoundError

_FIRST_LONG = 2**31 - 1
_LAST_SHORT = 10**10 - 1  # ten digits
_LAST = 2**63 - 1
_PACKAGE = "org.apache.bookkeeper.meta."
_FACTORY = "LedgerManagerFactory"
_RECORD = re.compile(r"([0-9]{1,9})\n([^:\n]+):([0-9]{1,9})\s*")
_VERSIONS = (1, 2)


class Layout(Enum):
    """The values are the names that a metadata service URI has for them; it has none for the legacy one."""

    FLAT = "flat"
    HIERARCHICAL = "hierarchical"
    LEGACY_HIERARCHICAL = "legacyhierarchical"
    LONG_HIERARCHICAL = "longhierarchical"


_FACTORIES = {
    "Flat": Layout.FLAT,
    "Hierarchical": Layout.HIERARCHICAL,
    "LegacyHierarchical": Layout.LEGACY_HIERARCHICAL,
    "LongHierarchical": Layout.LONG_HIERARCHICAL,
}


def decode_layout(data: bytes) -> Layout:
    """The value of the node LAYOUT. Raises DamagedRecordError; FatalError for a layout that we do not know."""
    match = _RECORD.fullmatch(data.decode(errors="replace"))
    if match is None:
        raise DamagedRecordError(f"{data[:100]!r} is no record of a layout")
    version, factory = int(match[1]), match[2]
    layout = _FACTORIES.get(factory.removeprefix(_PACKAGE).removesuffix(_FACTORY))
    if version not in _VERSIONS or layout is None:
        raise FatalError(f"ledgers are kept in a way that is not supported: {factory}, version {version} of LAYOUT")
    return layout


def encode_layout(layout: Layout) -> bytes:
    """The value of the node LAYOUT, as BookKeeper 4.17 writes it."""
    name = next(name for name, one in _FACTORIES.items() if one is layout)
    return f"2\n{_PACKAGE}{name}{_FACTORY}:1".encode()


def ledger_path(layout: Layout, ledger: int) -> str:
    """A ledger's path below the root of BookKeeper's nodes, with a leading slash.

    Raises LedgerNotFoundError for an id that no ledger of this layout can have.
    """
    if layout is Layout.HIERARCHICAL:
        layout = Layout.LEGACY_HIERARCHICAL if ledger < _FIRST_LONG else Layout.LONG_HIERARCHICAL
    if not 0 <= ledger <= (_LAST_SHORT if layout is Layout.LEGACY_HIERARCHICAL else _LAST):
        raise LedgerNotFoundError(f"no ledger can have the id {ledger}")
    if layout is Layout.FLAT:
        return f"/L{ledger:010d}"
    if layout is Layout.LEGACY_HIERARCHICAL:
        digits = f"{ledger:010d}"
        return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger:019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"
