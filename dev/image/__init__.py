"""The container image: how it is built, and what is in it."""
