"""The columns of one `PartGroup`, by the names of its fields."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import repeat

from offloader._proto import metadata_pb2 as pb
from offloader.metadata.columns import pack, unpack

ZEROS = repeat(0)
COLUMNS = tuple(f.name for f in pb.PartGroup.DESCRIPTOR.fields if f.name not in ("count", "etags", "etag_texts", "crcs"))


class ColumnWriter:
    """Collects the columns' values."""

    def __init__(self) -> None:
        self._columns: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, name: str, value: int) -> None:
        self._columns[name].append(value)

    def fill(self, message: pb.PartGroup) -> None:
        packed = {name: pack(values) for name, values in self._columns.items()}
        # The same offsets, told in two ways.
        shorter = min(("across_offset", "block_length"), key=lambda name: len(packed.get(name, b"")))
        packed.pop("block_length" if shorter == "across_offset" else "across_offset", None)
        for name, data in packed.items():
            setattr(message, name, data)


class ColumnReader:
    """Gives the values of some columns in the order in which they were added."""

    def __init__(self, message: pb.PartGroup, names: Iterable[str]) -> None:
        packed = {name: getattr(message, name) for name in names}
        self._columns: dict[str, Iterator[int]] = {name: iter(unpack(data)) for name, data in packed.items() if data}

    def has(self, name: str) -> bool:
        return name in self._columns

    def column(self, name: str) -> Iterator[int]:
        return self._columns.get(name, ZEROS)

    def take(self, name: str) -> int:
        return next(self._columns.get(name, ZEROS))

    def check_empty(self) -> None:
        """Raises ValueError where a column has values left."""
        for name, column in self._columns.items():
            if next(column, None) is not None:
                raise ValueError(f"column {name} has values left")
