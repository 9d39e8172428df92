"""The bridge for operators: what the doctor and `verify` check of it."""
