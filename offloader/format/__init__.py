"""Entries to blocks, parts and indexes, and back: PIP-76's streaming format (V2), PIP-17's per ledger (V1). Pure."""
