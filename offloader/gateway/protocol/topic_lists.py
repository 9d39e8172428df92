"""Lists of topics, as clients and servers compare them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

import crc32c

from offloader.gateway.values import ErrorCode, RefusedError

_PARTITION = re.compile(r"-partition-[0-9]+$")


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """By a client's regular expression of whole names, with or without `persistent://`; partitions by the name of their
    topic, which Java clients ask for by `^name$`. Raises RefusedError."""
    try:
        wanted = re.compile(pattern.partition("://")[2] or pattern, re.DOTALL)
    except re.error as error:
        raise RefusedError(ErrorCode.METADATA, f"{pattern!r} is no regular expression: {error}") from error
    return [name for name in names if wanted.fullmatch(_PARTITION.sub("", name.partition("://")[2]))]


def topics_hash(names: Iterable[str]) -> str:
    """Of a list of topics, as clients and brokers make it: CRC32C of the sorted names, its bytes little-endian."""
    return crc32c.crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()
