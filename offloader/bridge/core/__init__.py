"""Which ledgers can be bridged, of what bytes their objects are made, what follows from a look. Pure, no I/O."""
