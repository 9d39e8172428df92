"""Doubles for tests: an in-memory Pulsar, stores that fail on purpose."""
