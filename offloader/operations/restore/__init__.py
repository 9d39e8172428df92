"""Publishing an archived topic to a Pulsar again, each entry once."""
