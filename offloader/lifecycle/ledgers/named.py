"""Which ledgers are named, and by whom: for millions of them. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from offloader.lifecycle.ledgers.kinds import LedgerKind, RefereeKind, kind_by_name
from offloader.lifecycle.ledgers.references import Referee, References, named_ledgers
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext

Ids = NDArray[np.int64]
_FIRST, _LAST = 0, 2**63 - 1


class LedgerIds(Collection[int]):
    """Ledgers' ids in order, eight bytes each."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.sorted: Ids = np.unique(np.fromiter(ids, np.int64))

    def __len__(self) -> int:
        return len(self.sorted)

    def __iter__(self) -> Iterator[int]:
        return map(int, self.sorted)

    def __contains__(self, ledger: object) -> bool:
        if not isinstance(ledger, int) or not _FIRST <= ledger <= _LAST:
            return False
        at = int(np.searchsorted(self.sorted, ledger))
        return at < len(self.sorted) and int(self.sorted[at]) == ledger


class NamedLedgers:
    """Who names each ledger: two numbers for each, and one referee for each node."""

    def __init__(self, stores: Iterable[References]) -> None:
        ids, owners = array("q"), array("l")
        self._referees: list[Referee] = []
        for store in stores:
            for ledger, referee in named_ledgers(store):
                if not self._referees or self._referees[-1] is not referee:
                    self._referees.append(referee)
                ids.append(ledger)
                owners.append(len(self._referees) - 1)
        unordered = np.frombuffer(ids, np.int64) if ids else np.empty(0, np.int64)
        order = np.argsort(unordered, kind="stable")
        self._ids: Ids = unordered[order]
        self._owners = np.frombuffer(owners, np.dtype("l"))[order] if owners else np.empty(0, np.dtype("l"))

    def referees(self, ledger: int) -> tuple[Referee, ...]:
        """All nodes that name it."""
        if not _FIRST <= ledger <= _LAST:
            return ()
        first, after = (int(np.searchsorted(self._ids, ledger, side)) for side in ("left", "right"))
        return tuple(self._referees[owner] for owner in self._owners[first:after])

    def kinds_of(self, ledgers: LedgerIds) -> Mapping[LedgerKind, int]:
        """How many of these ledgers are named, by what those who name them say of them."""
        kinds = [kind_by_referee(one) for one in self._referees]
        first = np.concatenate(([True], self._ids[1:] != self._ids[:-1])) if len(self._ids) else np.empty(0, bool)
        there = first & np.isin(self._ids, ledgers.sorted)
        numbers = np.bincount(self._owners[there], minlength=len(kinds))
        counted: Counter[LedgerKind] = Counter()
        for kind, number in zip(kinds, numbers, strict=True):
            counted[kind] += int(number)
        return counted

    def not_named(self, ledgers: LedgerIds) -> Ids:
        """Those of the ledgers that nobody names, in order."""
        return np.setdiff1d(ledgers.sorted, self._ids, assume_unique=False)

    def not_among(self, ledgers: LedgerIds) -> Ids:
        """The named ones that are not among these, in order."""
        return np.setdiff1d(self._ids, ledgers.sorted, assume_unique=False)


class PackedList(Sequence[ListedLedger]):
    """A ledger list of which only what judging needs is kept: ids, and what left BookKeeper."""

    __slots__ = ("_copies", "_ids")

    def __init__(self, ledgers: Sequence[ListedLedger]) -> None:
        self._ids = array("q", (one.ledger for one in ledgers))
        contexts = ((one.ledger, one.context) for one in ledgers if one.context is not None)
        copies = {ledger: one._replace(driver="", timestamp_ms=0) for ledger, one in contexts}
        self._copies: dict[int, OffloadContext] | None = copies or None

    @overload
    def __getitem__(self, at: int) -> ListedLedger: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ListedLedger]: ...
    def __getitem__(self, at: int | slice) -> ListedLedger | Sequence[ListedLedger]:
        if isinstance(at, slice):
            return tuple(self._listed(ledger) for ledger in self._ids[at])
        return self._listed(self._ids[at])

    def __len__(self) -> int:
        return len(self._ids)

    def _listed(self, ledger: int) -> ListedLedger:
        return ListedLedger(ledger, 0, 0, 0, self._copies.get(ledger) if self._copies else None)


_NO_PROPERTIES: Mapping[str, str] = {}


def packed(node: ManagedLedger) -> ManagedLedger:
    """The same node for a scan's memory. Entries, sizes and times are not kept."""
    return replace(node, ledgers=PackedList(node.ledgers) if node.ledgers else (), properties=_NO_PROPERTIES)


def kind_by_referee(referee: Referee) -> LedgerKind:
    """What a ledger is for that this node names."""
    kind = _KINDS[referee.kind]
    if referee.kind not in (RefereeKind.LEDGER_LIST, RefereeKind.CURSOR_NODE):
        return kind
    name = referee.node.removeprefix("/managed-ledgers/")
    return kind_by_name(name if kind is LedgerKind.DATA else name.rpartition("/")[0], kind)


_KINDS = {
    RefereeKind.LEDGER_LIST: LedgerKind.DATA,
    RefereeKind.CURSOR_NODE: LedgerKind.CURSOR,
    RefereeKind.SCHEMA_LOCATOR: LedgerKind.SCHEMA,
    RefereeKind.COMPACTION_CURSOR: LedgerKind.COMPACTED_VIEW,
    RefereeKind.DELAYED_BUCKETS: LedgerKind.DELAYED_INDEX,
    RefereeKind.FUNCTIONS_LOG: LedgerKind.FUNCTIONS_PACKAGES,
}
