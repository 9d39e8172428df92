"""The columns of rows, one function each: what is not asked for is not made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offloader.archive.messages.arrays import (
    binary_array,
    id_array,
    map_array,
    number_array,
    text_array,
    time_array,
)
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.message_columns import encryption_value
from offloader.archive.messages.row_view import RowView
from offloader.archive.messages.schema import ENCRYPTION_KEYS
from offloader.archive.messages.text import unbase64
from offloader.format.scan import Int64s, Mask


def row_column(name: str, view: RowView) -> pa.Array:
    """A column of MESSAGE_SCHEMA."""
    return _COLUMNS[name](view)


def matching(view: RowView, wanted: MessageFilter) -> Mask:
    """Which rows have the keys and properties that are wanted."""
    found = np.ones(len(view), np.bool_)
    if wanted.keys is not None:
        keys = pa.array(sorted(wanted.keys), pa.binary())
        found &= pc.is_in(_key(view), value_set=keys).to_numpy(zero_copy_only=False)
    if wanted.properties:
        properties = _properties(view)
        row = np.repeat(np.arange(len(view)), np.diff(properties.offsets.to_numpy()))
        for name, value in wanted.properties.items():
            same = pc.and_(pc.equal(properties.keys, name), pc.equal(properties.items, value))
            found &= np.isin(np.arange(len(view)), row[same.to_numpy(zero_copy_only=False)])
    return found


def _value(view: RowView) -> pa.Array:
    contents = view.sources.contents
    valid = ~(view.own_flag("null_value") | view.entry_flag("null_value"))
    if contents.problem:
        valid &= ~np.isin(view.entry, list(contents.problem))
    return binary_array(contents.data, view.values(), valid)


def _key(view: RowView) -> pa.Array:
    keys = view.own_bytes("partition_key", ~view.own_flag("null_partition_key"))
    coded = view.own_flag("partition_key_b64_encoded")
    if not coded.any():
        return keys
    pairs = zip(keys.to_pylist(), coded.tolist(), strict=True)
    return pa.array([unbase64(key) if is_coded and key is not None else key for key, is_coded in pairs], pa.binary())


def _topic(view: RowView) -> pa.Array:
    return pa.repeat(pa.scalar(str(view.sources.topic)), len(view))


def _message_id(view: RowView) -> pa.Array:
    sources, partition = view.sources, view.sources.topic.partition
    return id_array([
        (1, sources.entries.ledger[view.entry], None),
        (2, sources.entries.entry[view.entry], None),
        (3, np.full(len(view), max(partition, 0)), np.full(len(view), partition >= 0)),
        (4, np.maximum(view.batch_index, 0), view.in_batch),
        (6, sources.envelopes.messages[view.entry], view.in_batch),
    ])  # fmt: skip


def _properties(view: RowView) -> pa.Array:
    found = view.properties()
    row = np.concatenate([pairs.row for pairs in found]) if found else np.zeros(0, np.int64)
    nothing = pa.array([], pa.binary())
    keys = pa.concat_arrays([nothing, *(binary_array(pairs.data, pairs.key) for pairs in found)])
    values = pa.concat_arrays([nothing, *(binary_array(pairs.data, pairs.value) for pairs in found)])
    if len(found) > 1:
        order = np.argsort(row, kind="stable")
        row, keys, values = row[order], keys.take(pa.array(order)), values.take(pa.array(order))
    return map_array(len(view), row, text_array(keys), text_array(values))


def _publish_time(view: RowView) -> pa.Array:
    return time_array(view.entry_number("publish_time"))


def _event_time(view: RowView) -> pa.Array:
    times = view.own_or_entry_number("event_time")
    return time_array(times, times != 0)


def _ledger(view: RowView) -> pa.Array:
    return pa.array(view.sources.entries.ledger[view.entry])


def _entry(view: RowView) -> pa.Array:
    return pa.array(view.sources.entries.entry[view.entry])


def _batch_index(view: RowView) -> pa.Array:
    return number_array(view.batch_index, pa.int32(), view.in_batch)


def _partition(view: RowView) -> pa.Array:
    return pa.array(np.full(len(view), view.sources.topic.partition, np.int32))


def _text(name: str, view: RowView) -> pa.Array:
    return text_array(view.entry_bytes(name))


def _sequence_id(view: RowView) -> pa.Array:
    return pa.array(view.own_or_entry_number("sequence_id"))


def _ordering_key(view: RowView) -> pa.Array:
    return view.own_bytes("ordering_key", np.ones(len(view), np.bool_))


def _schema_version(view: RowView) -> pa.Array:
    return view.entry_bytes("schema_version")


def _broker_time(view: RowView) -> pa.Array:
    broker = view.sources.envelopes.broker
    return time_array(broker.number("broker_timestamp")[view.entry], broker.has("broker_timestamp")[view.entry])


def _index(view: RowView) -> pa.Array:
    """The entry's index is that of its last message."""
    envelopes = view.sources.envelopes
    behind: Int64s = np.where(view.in_batch, envelopes.messages[view.entry] - 1 - view.batch_index, 0)
    index, known = envelopes.broker.number("index"), envelopes.broker.has("index")
    return number_array(index[view.entry] - behind, pa.int64(), known[view.entry])


def _encryption_keys(view: RowView) -> pa.Array:
    found = view.sources.contents.encryption
    if not found:
        return pa.nulls(len(view), ENCRYPTION_KEYS)
    return pa.array([encryption_value(found.get(entry)) for entry in view.entry.tolist()], ENCRYPTION_KEYS)


def _problem(view: RowView) -> pa.Array:
    found = view.sources.contents.problem
    if not found:
        return pa.nulls(len(view), pa.string())
    return pa.array([found.get(entry) for entry in view.entry.tolist()], pa.string())


_COLUMNS: dict[str, Callable[[RowView], pa.Array]] = {
    "value": _value,
    "__key": _key,
    "__topic": _topic,
    "__messageId": _message_id,
    "__publishTime": _publish_time,
    "__eventTime": _event_time,
    "__messageProperties": _properties,
    "__ledgerId": _ledger,
    "__entryId": _entry,
    "__batchIndex": _batch_index,
    "__partition": _partition,
    "__producerName": partial(_text, "producer_name"),
    "__sequenceId": _sequence_id,
    "__orderingKey": _ordering_key,
    "__schemaVersion": _schema_version,
    "__replicatedFrom": partial(_text, "replicated_from"),
    "__brokerPublishTime": _broker_time,
    "__index": _index,
    "__encryptionKeys": _encryption_keys,
    "__problem": _problem,
}
