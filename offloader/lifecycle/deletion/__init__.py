"""Deletion in two phases: what is marked, what is decided about it, and where it is kept."""
