"""The data source itself. Must be importable by name in Spark's Python processes, which start with `PYSPARK_PYTHON`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from offloader.errors import ConfigError

if TYPE_CHECKING:
    from offloader.archive.spark.options import SourceOptions

FORMAT = "pulsar-archive"


class PulsarArchiveSource(DataSource):
    """`spark.read` and `spark.readStream` of an archive: messages, or with `format` = `entries` raw entries.

    Options (offloader/archive/spark/parsing.py, docs/reading.md): the root, and exactly one of topic, topics,
    topicsPattern and namespace; all others have defaults. Columns: offloader/archive/messages/schema.py. Each method
    imports what it needs: Spark starts a process for each, and one that looks for sources before the first query.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """All columns, or those of option `columns`. Raises ConfigError."""
        from offloader.archive.spark.tables import spark_schema

        options = self._options()
        return spark_schema(options.form, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from offloader.archive.spark.batch import ArchiveReader, FilteringReader

        options = self._options(schema)
        if options.from_latest:
            raise ConfigError("startingOffsets: latest is only for a stream; use startingPosition or startingTime")
        return FilteringReader(options, schema) if options.push_filters else ArchiveReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from offloader.archive.spark.stream import ArchiveStreamReader

        options = self._options(schema)
        refuse_for_streams(options)
        return ArchiveStreamReader(options, schema)

    def _options(self, schema: StructType | None = None) -> SourceOptions:
        from offloader.archive.spark.parsing import parse_options
        from offloader.archive.spark.tables import check_columns

        options = parse_options(dict(self.options))
        if schema is not None:
            check_columns(options.form, schema)
        return options


def refuse_for_streams(options: SourceOptions) -> None:
    """Raises ConfigError for what only `spark.read` can do."""
    only_for_batches = {
        "endingTime": options.ending_time is not None,
        "endingPosition": bool(options.ending_position.only or options.ending_position.each),
        "ledgers": options.ledgers is not None,
        "pushFilters": options.push_filters,
    }
    name = next((name for name, given in only_for_batches.items() if given), None)
    if name is not None:
        raise ConfigError(f"{name}: not for a stream; use spark.read")
