"""The Spark data source `pulsar-archive`: batch and streaming reads. Only this folder knows Spark."""
