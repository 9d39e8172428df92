"""From records to entries: what to read (pure), the fetching, what is in the bytes (pure)."""
