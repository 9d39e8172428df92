"""The way from ledger-based offload to segments, and back."""
