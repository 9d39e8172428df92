"""Which entries of a ledger a bookie says it holds, as GET_LIST_OF_ENTRIES_OF_LEDGER packs it. Pure.

`[u32 version 0][u32 number of groups]`, zeros up to 64 bytes, then for each group
`[i64 first][i64 last][u32 size][u32 period]`: runs of `size` consecutive entries that begin at `first`, `first` +
`period`, ... and `last` (period 0: one run). BookKeeper 4.17.2 makes a group of each run, though the format would allow
a whole striped ledger in one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from struct import Struct, error
from typing import NamedTuple

from offloader.errors import ProtocolError

_HEADER = Struct(">II56x")
_GROUP = Struct(">qqII")


class Group(NamedTuple):
    """Runs of `size` entries: the first begins at `first`, the last at `last`, `period` apart."""

    first: int
    last: int
    size: int
    period: int

    @property
    def runs(self) -> range:
        """Where each run begins."""
        return range(self.first, self.last + 1, self.period or 1)


class Availability(Collection[int]):
    """A set of entry ids; as large as the number of its groups, whatever the number of entries."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = tuple(sorted(groups))
        for group in self._groups:
            _check(group)
        if any(a.last + a.size > b.first for a, b in pairwise(self._groups)):
            raise ProtocolError("a bookie's list of entries overlaps itself")
        self._count = sum(len(group.runs) * group.size for group in self._groups)

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, int):
            return False
        at = bisect_right(self._groups, entry, key=lambda group: group.first) - 1
        if at < 0:
            return False
        group = self._groups[at]
        offset = entry - group.first
        return entry < group.last + group.size and (offset % group.period if group.period else offset) < group.size

    def __iter__(self) -> Iterator[int]:
        for group in self._groups:
            for begin in group.runs:
                yield from range(begin, begin + group.size)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Availability({list(self._groups)!r})"


def decode(data: bytes) -> Availability:
    """Read a bookie's answer. Raises ProtocolError."""
    try:
        version, count = _HEADER.unpack_from(data)
        groups = [Group(*_GROUP.unpack_from(data, _HEADER.size + number * _GROUP.size)) for number in range(count)]
    except error as problem:
        raise ProtocolError(f"a bookie's list of entries of {len(data)} bytes is cut off") from problem
    if version != 0:
        raise ProtocolError(f"a bookie's list of entries has the version {version}, which is not known")
    return Availability(groups)


def encode(groups: Iterable[Group]) -> bytes:
    """What a bookie answers."""
    packed = [_GROUP.pack(*group) for group in groups]
    return _HEADER.pack(0, len(packed)) + b"".join(packed)


def _check(group: Group) -> None:
    one_run = group.first == group.last
    steps = one_run or (group.period >= max(group.size, 1) and (group.last - group.first) % group.period == 0)
    beyond = group.last + group.size > 2**63 - 1  # no entry has such an id
    if group.first < 0 or group.last < group.first or group.size < 1 or beyond or not steps:
        raise ProtocolError(f"a bookie's list of entries has an impossible group {tuple(group)}")
