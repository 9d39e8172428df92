"""Lists of topics: of an archive by namespace, and as clients and servers compare them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import crc32c
import pyarrow as pa
import pyarrow.compute as pc

from offloader.gateway.values import ErrorCode, RefusedError
from offloader.model import TopicName, split_partition

MOST_PATTERN = 1_000  # characters
SECONDS, A_NAME = 0.5, 2e-6  # of a processor, for a pattern and for each name: any simple pattern takes less
_MOST_AT_ONCE = 4_096  # names


def matching(names: Sequence[str], pattern: str, clock: Callable[[], float]) -> list[str]:
    """By a client's regular expression of whole names, with or without `persistent://`; partitions by the name of their
    topic, which Java clients ask for by `^name$`. Raises RefusedError.

    `clock`: how much this thread has used of a processor. The expression is a stranger's: RE2 (which Arrow has, and
    brokers, too) never goes back in a name. What is slow all the same is given up: a few names at first, and more as
    long as that is quick. Arrow holds no lock of Python's."""
    if len(pattern) > MOST_PATTERN:
        raise RefusedError(ErrorCode.METADATA, f"a pattern has {MOST_PATTERN} characters at most")
    wanted = rf"\A(?s:{pattern.partition('://')[2] or pattern})\z"
    pc.match_substring_regex(pa.array([""]), "")  # Arrow loads at its first use, for a second or more
    found: list[str] = []
    begin, count, until = 0, 1, clock() + SECONDS + len(names) * A_NAME
    while begin < len(names):
        part = names[begin : begin + count]
        try:
            fits = pc.match_substring_regex(
                pa.array([split_partition(name.partition("://")[2])[0] for name in part]), wanted
            )
        except pa.ArrowInvalid as error:
            raise RefusedError(ErrorCode.METADATA, f"{pattern!r} is no regular expression: {error}") from error
        found += [name for name, fit in zip(part, fits.to_pylist(), strict=True) if fit]
        begin, count = begin + count, min(count * 2, _MOST_AT_ONCE)
        if clock() > until and begin < len(names):
            raise RefusedError(ErrorCode.METADATA, f"{pattern!r} takes too long: write a simpler one")
    return found


def topics_hash(names: Iterable[str]) -> str:
    """Of a list of topics, as clients and brokers make it: CRC32C of the sorted names, its bytes little-endian."""
    return crc32c.crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


class TopicDirectory(NamedTuple):
    """`names`: full ones, sorted, by namespace. `partitions`: of partitioned topics, by their full names, sorted."""

    topics: frozenset[TopicName]
    names: dict[str, list[str]]
    partitions: dict[str, list[TopicName]]


def directory_of(found: Iterable[TopicName]) -> TopicDirectory:
    """Of a list of them."""
    names, partitions = defaultdict(list), defaultdict(list)
    topics = sorted(found)
    for topic in topics:
        names[topic.namespace].append(str(topic))
        if topic.partition >= 0:
            partitions[topic.partitioned_name].append(topic)
    return TopicDirectory(frozenset(topics), {name: sorted(each) for name, each in names.items()}, dict(partitions))


def partition_count(archived: Iterable[TopicName], copied: int | None) -> int:
    """Of a partitioned topic. `copied`: what Pulsar's metadata said when it was copied; 0: that it is none, whatever
    the names look like. Newer partitions follow the copied count without a hole. None: only names tell."""
    numbers = {topic.partition for topic in archived}
    if copied is None:
        return max(numbers, default=-1) + 1
    while copied and copied in numbers:
        copied += 1
    return copied
