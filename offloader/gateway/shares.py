"""Parts of a memory that has a bound, for nobody knows how many. Pure."""

from __future__ import annotations

from offloader.model import KIB

LEAST = 64 * KIB  # bytes: less would be of no use
_OF_WHAT_IS_LEFT = 64


class Shares:
    """Who comes gets a small part of what is left. So all parts together stay within `most` bytes, but for the least
    part, which everybody gets."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, wanted: int) -> int:
        """Bytes, at most as many as wanted; to be given back."""
        part = max(min(wanted, self.left // _OF_WHAT_IS_LEFT), min(wanted, LEAST))
        self.left -= part
        return part

    def give_back(self, part: int) -> None:
        """Whoever had it is gone."""
        self.left += part
