"""The Spark data source `pulsar-archive`: batch and streaming reads of an archive. Only this room of the archive knows
Spark."""
