"""Doubles for tests: Pulsar and BookKeeper in memory, stores that fail on purpose, and what must always hold."""
