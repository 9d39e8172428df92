"""One position, looked at as closely as can be."""
