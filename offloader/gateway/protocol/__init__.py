"""Frames and commands as a server gives them: values to bytes. Pure."""
