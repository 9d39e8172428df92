"""Ledgers that stock brokers offloaded (PIP-17, V1): found, chosen, verified, joined with our own segments."""
