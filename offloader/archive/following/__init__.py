"""From the archive's end on into the live topic, and back where Pulsar has trimmed what comes next."""
