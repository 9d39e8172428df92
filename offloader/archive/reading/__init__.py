"""From a catalog to entries: what to read (pure), the reading of ranges, the entries in them."""
