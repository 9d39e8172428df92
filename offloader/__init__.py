"""A streaming offloader for Apache Pulsar: topics become verified segments in an object store (PIP-76)."""
