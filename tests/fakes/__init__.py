"""Pulsar and BookKeeper in memory, and stores that fail on purpose."""
