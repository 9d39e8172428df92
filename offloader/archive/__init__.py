"""For readers: what is stored of a topic, as entries, messages and rows. Writes nothing.

Read in this order:

1. `archive`, `topic`: what Python programs call.
2. `opened`, `records`: from a root to the list of a topic's segments, which is its catalog.
3. `reading`: from records to object ranges (`plan`), from ranges to entries (`reader`).
4. `messages`: from entries to messages and rows.

The values between these stages: `selection` (what somebody wants), `snapshot` (what is stored), `object_range` (what is
to be read), `items` (what was read).

Beside these: `ledgers` (a bucket that Pulsar's own offloader has filled), `following` (on into the live topic), `peek`
(one position), `spark` (the data source; its way is described there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the data source `pulsar-archive` known to a session: `spark.read.format("pulsar-archive")` then finds it.

    Needed only where Spark did not find it by itself: it looks once a session for installed packages whose names begin
    with `pyspark_`.
    """
    from offloader.archive.spark.data_source import PulsarArchiveSource

    spark.dataSource.register(PulsarArchiveSource)
