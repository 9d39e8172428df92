"""Writes the generated pages of the manual."""
