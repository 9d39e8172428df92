"""Archived topics as Parquet files."""
