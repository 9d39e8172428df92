"""Lists of topics, as clients and servers compare them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import crc32c
import pyarrow as pa
import pyarrow.compute as pc

from offloader.gateway.values import ErrorCode, RefusedError

MOST_PATTERN = 1_000  # characters
SECONDS, A_NAME = 0.5, 2e-6  # of a processor, for a pattern and for each name: any simple pattern takes less
_MOST_AT_ONCE = 4_096  # names
_PARTITION = re.compile(r"-partition-[0-9]+$")


def matching(names: Sequence[str], pattern: str, clock: Callable[[], float]) -> list[str]:
    """By a client's regular expression of whole names, with or without `persistent://`; partitions by the name of their
    topic, which Java clients ask for by `^name$`. Raises RefusedError.

    `clock`: how much this thread has used of a processor. The expression is a stranger's: RE2 (which Arrow has, and
    brokers, too) never goes back in a name. What is slow all the same is given up: a few names at first, and more as
    long as that is quick. Arrow holds no lock of Python's."""
    if len(pattern) > MOST_PATTERN:
        raise RefusedError(ErrorCode.METADATA, f"a pattern has {MOST_PATTERN} characters at most")
    wanted = rf"\A(?s:{pattern.partition('://')[2] or pattern})\z"
    found: list[str] = []
    begin, count, until = 0, 1, clock() + SECONDS + len(names) * A_NAME
    while begin < len(names):
        part = names[begin : begin + count]
        try:
            fits = pc.match_substring_regex(
                pa.array([_PARTITION.sub("", name.partition("://")[2]) for name in part]), wanted
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
