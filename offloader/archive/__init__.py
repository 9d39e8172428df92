"""Reading back what is offloaded, and checking it."""

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
