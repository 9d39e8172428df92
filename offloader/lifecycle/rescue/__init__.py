"""Entries that no list has, copied into the archive before anything else becomes of them."""
