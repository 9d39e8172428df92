"""What the official client writes, as it computes it itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contents:
    """The entries of one ledger: unlike each other, of sizes between two bounds, known from the seed alone."""

    seed: int
    smallest: int = 0
    largest: int = 300

    def of(self, entry: int) -> bytes:
        """The SHA-256 of "seed:entry" again and again; its first bytes also choose the size."""
        digest = hashlib.sha256(f"{self.seed}:{entry}".encode()).digest()
        size = self.smallest + int.from_bytes(digest[:4], "big") % (self.largest - self.smallest + 1)
        return (digest * (size // len(digest) + 1))[:size]
