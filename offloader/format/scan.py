"""Many protobuf messages parsed at once: field by field across all of them, with numpy.

Messages of one kind have nearly the same layout, so the n-th fields of thousands of them are read by a few vector
operations, where a parser takes about a microsecond for each message. What is not plain (groups, lengths beyond the
end, missing required fields) is marked as irregular and left to protobuf itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_LARGEST_TAG, _LONGEST_TAG = np.uint64((1 << 32) - 1), 5  # bytes; protobuf refuses others
_NUMBERS = {
    FieldDescriptor.TYPE_BOOL,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT32,
    FieldDescriptor.TYPE_INT32,
}


@dataclass
class Ranges:
    """Where bytes begin and end in a buffer."""

    begin: Int64s
    end: Int64s

    def __getitem__(self, rows: Any) -> Ranges:
        return Ranges(self.begin[rows], self.end[rows])

    def __len__(self) -> int:
        return len(self.begin)

    @classmethod
    def empty(cls, count: int) -> Ranges:
        return cls(np.zeros(count, np.int64), np.zeros(count, np.int64))


@dataclass
class Repeated:
    """The values of a repeated field, in the order of the messages: which message has it, and where it lies."""

    row: Int64s
    ranges: Ranges


@dataclass
class Fields:
    """The wanted fields of `count` messages. A number that is absent is 0, absent bytes are empty; `has` tells."""

    count: int
    irregular: Mask
    _numbers: dict[str, Int64s] = field(default_factory=dict)
    _ranges: dict[str, Ranges] = field(default_factory=dict)
    _has: dict[str, Mask] = field(default_factory=dict)
    _repeated: dict[str, list[tuple[Int64s, Ranges]]] = field(default_factory=dict)

    def number(self, name: str) -> Int64s:
        """Signed, as Java reads it."""
        found = self._numbers.get(name)
        return np.zeros(self.count, np.int64) if found is None else found

    def flag(self, name: str) -> Mask:
        """A bool field."""
        return self.number(name).astype(np.bool_)

    def bytes(self, name: str) -> Ranges:
        return self._ranges.get(name) or Ranges.empty(self.count)

    def has(self, name: str) -> Mask:
        found = self._has.get(name)
        return np.zeros(self.count, np.bool_) if found is None else found

    def repeated(self, name: str) -> Repeated:
        """The field's values; each message's in their order."""
        found = self._repeated.get(name, [])
        if not found:
            return Repeated(np.zeros(0, np.int64), Ranges.empty(0))
        rows = np.concatenate([rows for rows, _ in found])
        ranges = Ranges(np.concatenate([r.begin for _, r in found]), np.concatenate([r.end for _, r in found]))
        order = np.argsort(rows, kind="stable")
        return Repeated(rows[order], ranges[order])

    def _put(self, found: FieldDescriptor, rows: Int64s, values: UInt64s | Ranges) -> None:
        name = found.name
        if found.is_repeated and isinstance(values, Ranges):
            self._repeated.setdefault(name, []).append((rows, values))
        elif isinstance(values, Ranges):
            kept = self._ranges.setdefault(name, Ranges.empty(self.count))
            kept.begin[rows], kept.end[rows] = values.begin, values.end
        else:
            self._numbers.setdefault(name, np.zeros(self.count, np.int64))[rows] = _as_read(found, values)
        self._has.setdefault(name, np.zeros(self.count, np.bool_))[rows] = True


def scan(data: Bytes, ranges: Ranges, kind: Any, wanted: Collection[str]) -> Fields:
    """The wanted fields of the messages of this kind (a protobuf class) that lie in these ranges of `data`."""
    required = _required(kind)
    tags = _tags(kind, frozenset(wanted) | required)
    fields = Fields(len(ranges), np.zeros(len(ranges), np.bool_))
    at = ranges.begin.copy()
    rows = np.flatnonzero(at < ranges.end)
    while len(rows):
        begin = at[rows]
        tag, at[rows], bad = varints(data, begin, ranges.end[rows])
        bad |= (tag > _LARGEST_TAG) | (at[rows] - begin > _LONGEST_TAG)
        fields.irregular[rows[bad]] = True
        for one in np.unique(tag[~bad]) if bad.any() or (tag != tag[0]).any() else tag[:1]:
            these = rows[(tag == one) & ~bad]
            _read_field(data, fields, tags.get(int(one)), int(one), these, at, ranges.end)
        rows = rows[(at[rows] < ranges.end[rows]) & ~fields.irregular[rows]]
    for name in required:
        fields.irregular |= ~fields.has(name)
    return fields


def varints(data: Bytes, at: Int64s, end: Int64s) -> tuple[UInt64s, Int64s, Mask]:
    """The varints at these places: values, where they end, and which of them do not end before `end`."""
    first = data.take(at, mode="clip")
    value = (first & 0x7F).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(first >= 0x80)
    for shift in range(7, 70, 7):
        if not len(more):
            break
        byte = data.take(after[more], mode="clip")
        value[more] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[byte >= 0x80]
    bad = after > end
    bad[more] = True
    return value, after, bad


def u32s(data: Bytes, at: Int64s) -> Int64s:
    """The big-endian numbers at these places; any number where they lie beyond the end."""
    value = np.zeros(len(at), np.int64)
    for byte in range(4):
        value = value << 8 | data.take(at + byte, mode="clip")
    return value


def _read_field(
    data: Bytes, fields: Fields, wanted: FieldDescriptor | None, tag: int, rows: Int64s, at: Int64s, ends: Int64s
) -> None:
    """Read the field that `rows` have next, and move their places behind it."""
    begin, end = at[rows], ends[rows]
    wire = tag & 7
    if wire == _VARINT:
        value, after, bad = varints(data, begin, end)
        if wanted is not None:
            fields._put(wanted, rows, value)  # noqa: SLF001
    elif wire == _LENGTH:
        length, begin, bad = varints(data, begin, end)
        bad |= length > np.maximum(end - begin, 0).astype(np.uint64)
        after = np.where(bad, begin, begin + length.astype(np.int64))
        if wanted is not None:
            fields._put(wanted, rows, Ranges(begin, after))  # noqa: SLF001
    else:
        after = begin + _FIXED_SIZES.get(wire, 0)
        bad = (after > end) | (wire not in _FIXED_SIZES)
    fields.irregular[rows[bad]] = True
    if tag < 8:
        fields.irregular[rows] = True
    at[rows] = after


def _as_read(found: FieldDescriptor, values: UInt64s) -> Int64s:
    if found.type == FieldDescriptor.TYPE_BOOL:
        return np.not_equal(values, 0).astype(np.int64)
    if found.type == FieldDescriptor.TYPE_INT32:
        return values.astype(np.uint32).view(np.int32).astype(np.int64)
    if found.type == FieldDescriptor.TYPE_UINT32:
        return values.astype(np.uint32).astype(np.int64)
    return values.view(np.int64)


@cache
def _tags(kind: Any, wanted: frozenset[str]) -> dict[int, FieldDescriptor]:
    found = (field for field in kind.DESCRIPTOR.fields if field.name in wanted)
    return {field.number << 3 | (_VARINT if field.type in _NUMBERS else _LENGTH): field for field in found}


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(found.name for found in kind.DESCRIPTOR.fields if found.is_required)
