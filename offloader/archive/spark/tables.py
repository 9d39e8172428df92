"""The two tables, messages and entries: their columns in Spark's words, and a task's entries as their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from offloader.archive.items import EntryRun
from offloader.archive.messages.columns import entry_batches, message_batches
from offloader.archive.messages.filters import MessageFilter
from offloader.archive.messages.payloads import UnpackOptions
from offloader.archive.messages.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA
from offloader.archive.spark.filters import ColumnNames
from offloader.archive.spark.options import Form
from offloader.errors import ConfigError
from offloader.model import TopicName

SCHEMAS: dict[Form, pa.Schema] = {Form.MESSAGES: MESSAGE_SCHEMA, Form.ENTRIES: ENTRY_SCHEMA}
NAMES = {
    Form.MESSAGES: ColumnNames("__topic", "__ledgerId", "__entryId", "__publishTime"),
    Form.ENTRIES: ColumnNames("topic", "ledgerId", "entryId", "publishTime"),
}


def spark_schema(form: Form, columns: Sequence[str] = ()) -> StructType:
    """The table's columns, or some of them in this order. Raises ConfigError."""
    whole = SCHEMAS[form]
    _check_names(form, columns)
    return from_arrow_schema(pa.schema([whole.field(name) for name in columns]) if columns else whole)


def check_columns(form: Form, schema: StructType) -> None:
    """Raises ConfigError for a schema (`.schema(...)`) that is not some of the table's columns."""
    names = schema.fieldNames()
    _check_names(form, names)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"schema: it has {twice} twice")
    types = {field.name: field.dataType for field in spark_schema(form)}
    for field in schema:
        if field.dataType != types[field.name]:
            said, right = field.dataType.simpleString(), types[field.name].simpleString()
            raise ConfigError(f"schema: {field.name} is {right}, not {said}; cast it after load()")


class Table:
    """Makes the rows of one task, with the columns of `schema`."""

    def __init__(self, form: Form, schema: StructType) -> None:
        self._form = form
        self._columns = schema.fieldNames()
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def batches(
        self,
        runs: Iterable[EntryRun],
        topic: TopicName,
        unpack: UnpackOptions,
        published_from: int | None,
        published_to: int | None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some entries, in their order; with times those published then (ms, both included)."""
        if self._form is Form.MESSAGES:
            wanted = MessageFilter(published_from, published_to)
            found = message_batches(runs, topic, self._columns, wanted=wanted, options=unpack)
        else:
            found = entry_batches(runs, topic, self._columns, published_from=published_from, published_to=published_to)
        for batch in found:
            yield batch if batch.schema.equals(self._schema) else batch.cast(self._schema)


def _check_names(form: Form, columns: Iterable[str]) -> None:
    known = SCHEMAS[form].names
    unknown = next((name for name in columns if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"columns: {form} have no column {unknown}; there are {', '.join(known)}")
