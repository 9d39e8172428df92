"""Ledgers that their list says were deleted from BookKeeper: what readers get is their copy in the bucket. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from offloader.lifecycle.ledgers.evidence import SeenLedger
from offloader.lifecycle.ledgers.references import References
from offloader.state.managed_ledger import ManagedLedger, OffloadContext


class CopiedLedger(NamedTuple):
    """Such a ledger that is still in BookKeeper, and what its list says of its copy. `last_entry`, `length`: as
    BookKeeper has them; None: it is not closed, or not known."""

    ledger: int
    managed_ledger: str
    copy: OffloadContext
    last_entry: int | None = None
    length: int = 0


VerifyCopies = Callable[[Collection[CopiedLedger]], Mapping[int, bool]]
"""Reads copies back: whether each is whole. Those that it leaves out could not be read. Raises ConfigError."""


def no_copies(_ledgers: Collection[CopiedLedger]) -> Mapping[int, bool]:
    """Where nobody can read the bucket: these ledgers stay suspect."""
    return {}


def copied(stores: Iterable[References], names: Iterable[str], candidates: Iterable[int]) -> Iterator[CopiedLedger]:
    """Those among the candidates, of managed ledgers with these names."""
    wanted, names = set(candidates), sorted(names)
    for store in stores:
        for name in names:
            node = store.lists.get(name)
            for listed in node.ledgers if isinstance(node, ManagedLedger) else ():
                if listed.copy.bookkeeper_deleted and listed.ledger in wanted:
                    yield CopiedLedger(listed.ledger, name, listed.copy)


def with_ends(copies: Iterable[CopiedLedger], seen: Iterable[SeenLedger]) -> tuple[CopiedLedger, ...]:
    """The same with what BookKeeper says of the ledgers' ends."""
    known = {one.ledger: one for one in seen}
    return tuple(
        one._replace(last_entry=known[one.ledger].last_entry, length=known[one.ledger].length)
        if one.ledger in known
        else one
        for one in copies
    )
