"""A real Apache Pulsar on this machine, for the demo and the integration tests. Nothing here is used against a
cluster."""
