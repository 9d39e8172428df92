"""Where keys and consumers' names fall by the hash that brokers use. Pure."""

from __future__ import annotations

from offloader.gateway.murmur import murmur3_32
from offloader.gateway.values import STICKY_HASHES

RING = 1 << 31
POINTS = 100
"""Of each consumer on a ring, as brokers have them by default."""


def name_hash(name: str) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) without its highest bit."""
    return murmur3_32(name.encode()) & RING - 1


def ring_slot(hashed: int) -> int:
    """1..65535: of a key or a name, where the keys are split by a ring."""
    return hashed % (STICKY_HASHES - 1) + 1


def range_slot(hashed: int) -> int:
    """1..65535: of a key, where consumers name ranges. Not as above, in brokers too: theirs begin at 0."""
    return hashed % STICKY_HASHES or 1


def distance(topic: str, consumer: str) -> int:
    """How far behind a topic's point on the ring the first one of a consumer is: the nearest becomes active."""
    start = name_hash(topic)
    return min((name_hash(f"{consumer}{point}") - start) % RING for point in range(POINTS))
