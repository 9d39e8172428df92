"""Subscriptions of live topics, protected against brokers that forget what was acknowledged."""
