"""Which consumer of a Key_Shared subscription gets which keys, by their hashes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

from offloader.gateway.core.hashing import POINTS, name_hash, range_slot, ring_slot
from offloader.gateway.core.waiting import Subscriber
from offloader.gateway.values import ErrorCode, RefusedError


class Keys(Protocol):
    """The hashes of consumers that are there."""

    def join(self, consumer: Subscriber) -> None:
        """Raises RefusedError, then has changed nothing."""
        ...

    def leave(self, consumer: Subscriber) -> None: ...

    def owner(self, sticky: int) -> Subscriber | None: ...


class AutoSplit:
    """Brokers' ring: each consumer has points by its name, and the keys up to each of them.

    Consumers of the same name are told apart by the lowest number that is free."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._at: dict[int, list[Subscriber]] = {}  # the first one has the point
        self._numbers: dict[Subscriber, int] = {}

    def join(self, consumer: Subscriber) -> None:
        taken = {number for each, number in self._numbers.items() if each.name == consumer.name}
        self._numbers[consumer] = next(number for number in range(len(taken) + 1) if number not in taken)
        for point in self._points_of(consumer):
            if point not in self._at:
                insort(self._points, point)
            self._at.setdefault(point, []).append(consumer)

    def leave(self, consumer: Subscriber) -> None:
        for point in self._points_of(consumer):
            self._at[point].remove(consumer)
            if not self._at[point]:
                del self._at[point]
                del self._points[bisect_left(self._points, point)]
        del self._numbers[consumer]

    def owner(self, sticky: int) -> Subscriber | None:
        if not self._points:
            return None
        at = bisect_left(self._points, ring_slot(sticky))
        return self._at[self._points[at % len(self._points)]][0]

    def _points_of(self, consumer: Subscriber) -> list[int]:
        name = f"{consumer.name}\0{self._numbers[consumer]}\0"
        return [ring_slot(name_hash(f"{name}{point}")) for point in range(POINTS)]


class Sticky:
    """Each consumer has the ranges that it named. Keys in no range wait for somebody who has them."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, Subscriber]] = []  # in order, none overlaps another

    def join(self, consumer: Subscriber) -> None:
        wanted = list(consumer.joining.key_policy.ranges or ())
        if not wanted:
            raise RefusedError(ErrorCode.CONSUMER_ASSIGN, "Ranges for KeyShared policy must not be empty.")
        if any(first > last for first, last in wanted):
            raise RefusedError(ErrorCode.CONSUMER_ASSIGN, "Fixed hash range start > end")
        ours = [(first, last, consumer) for first, last in wanted]
        ranges = sorted([*self._ranges, *ours], key=lambda each: each[:2])
        for (_, last, one), (first, _, other) in pairwise(ranges):
            if first <= last:
                name = (other if one is consumer else one).name
                raise RefusedError(ErrorCode.CONSUMER_ASSIGN, f"Range conflict with consumer {name}")
        self._ranges = ranges

    def leave(self, consumer: Subscriber) -> None:
        self._ranges = [each for each in self._ranges if each[2] is not consumer]

    def owner(self, sticky: int) -> Subscriber | None:
        slot = range_slot(sticky)
        at = bisect_right(self._ranges, slot, key=lambda each: each[0]) - 1
        if at < 0 or self._ranges[at][1] < slot:
            return None
        return self._ranges[at][2]


class HashRanges:
    """Hashes from the first to the last of each range, both included; they may overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(each for each in ranges if each[0] <= each[1]):
            if self._lasts and first <= self._lasts[-1]:
                self._lasts[-1] = max(last, self._lasts[-1])
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __contains__(self, slot: int) -> bool:
        at = bisect_right(self._firsts, slot) - 1
        return at >= 0 and slot <= self._lasts[at]
