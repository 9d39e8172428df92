"""Lets Spark find the data source `pulsar-archive`: it looks for `DefaultSource` in installed packages named
`pyspark_…`."""

from offloader.archive.spark.data_source import PulsarArchiveSource as DefaultSource

__all__ = ["DefaultSource"]
