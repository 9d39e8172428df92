"""The state of a subscription in pieces, one for each ledger (PIP-81), kept in an object store."""
