"""Rows by the three ways of getting them, in one form that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from offloader.archive.items import EntryRun
from offloader.archive.messages.columns import message_batches
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.schema import MESSAGE_COLUMNS, MESSAGE_SCHEMA
from offloader.archive.messages.unpack import Unpacker
from tests.archive.messages.encoder import TOPIC, Encoded, Row

COLUMNS = MESSAGE_SCHEMA.names


def expected(entries: Sequence[Encoded], first: int = 0, start: int = 0) -> list[Row]:
    """The rows of the entries from `start` on."""
    return [row for n, entry in enumerate(entries) if n >= start for row in entry.rows_at(first + n)]


def by_messages(
    runs: Iterable[EntryRun], options: UnpackOptions | None = None, wanted: MessageFilter | None = None
) -> list[Row]:
    unpacker = Unpacker(options, wanted)
    messages = (message for run in runs for message in unpacker.messages(run))
    return [
        _comparable({column.name: column.of_message(message, TOPIC) for column in MESSAGE_COLUMNS})
        for message in messages
    ]


def by_columns(
    runs: Iterable[EntryRun],
    options: UnpackOptions | None = None,
    columns: Sequence[str] | None = None,
    wanted: MessageFilter | None = None,
    **bounds: int,
) -> list[Row]:
    rows: list[Row] = []
    for found in message_batches(runs, TOPIC, columns, wanted=wanted, options=options, **bounds):
        found.validate(full=True)
        rows += [_comparable(row) for row in _plain(found).to_pylist()]
    return rows


def pruned(rows: Iterable[Row], columns: Iterable[str]) -> list[Row]:
    kept = list(columns)
    return [{name: row[name] for name in kept} for row in rows]


def _plain(found: pa.RecordBatch) -> pa.RecordBatch:
    """Times as numbers."""
    arrays = [a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in found.columns]
    return pa.RecordBatch.from_arrays(arrays, names=found.schema.names)


def _comparable(row: dict[str, Any]) -> Row:
    if row.get("__messageProperties") is not None:
        row["__messageProperties"] = sorted(row["__messageProperties"])
    return row
