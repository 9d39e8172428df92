"""Closes the ledger of a writer that is gone, safely, and says why it ends where it does.

`machine.py` decides (no I/O), `runner.py` does what it asks for, `evidence.py` keeps what was seen, `inspection.py`
looks without touching anything.
"""
