"""Benchmarks: every figure beside what it is a ratio of, measured in the same run."""
