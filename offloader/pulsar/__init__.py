"""The way to a Pulsar cluster: its binary protocol, entries, durable pins, admin REST."""
