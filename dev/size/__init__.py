"""Measures the size and shape of the code, for one commit or for two side by side."""
