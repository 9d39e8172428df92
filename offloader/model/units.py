"""Sizes in bytes, and the largest numbers that Java reads."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# The last time that Java reads as one: a record has times as unsigned numbers.
MAX_TIME = (1 << 63) - 1

# A Java reader holds object lengths in 32 bits.
MAX_OBJECT_SIZE = 2 * GIB - 1
