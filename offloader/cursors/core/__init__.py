"""Acknowledgements in, records out. Pure."""
