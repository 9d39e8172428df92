"""Entries to blocks, parts and index objects, and back: PIP-76's streaming format (V2), PIP-17's ledger-based one (V1).
Pure."""
