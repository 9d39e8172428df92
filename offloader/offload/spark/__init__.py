"""Spark, between the driver and the workers."""
