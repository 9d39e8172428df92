"""Everything that can be checked of an archive without Pulsar."""
