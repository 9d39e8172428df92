"""Limits between several fields, checked for each level of the file after the merge."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from offloader.config.levels import DEFAULTS, ENTRY_OVERHEAD, Level
from offloader.config.policies import Policies, Resolved
from offloader.config.problems import ConfigProblem
from offloader.config.units import format_size, format_time
from offloader.model import MAX_OBJECT_SIZE, MIB, Source

S3_MIN_PART = 5 * MIB  # as MIN_PART in storage/s3.py, which this wing may not import
R2 = ".r2.cloudflarestorage.com"

Values = dict[str, Resolved]


def check(policies: Policies, root: str, *, has_bookies: bool, endpoint: str | None = None) -> Iterator[ConfigProblem]:
    """Every violated limit, at the path that set the value at fault. `has_bookies`: there is a metadata service."""
    is_r2 = (urlsplit(endpoint or "").hostname or "").endswith(R2)
    for layers in policies.scopes():
        values = {field: policies.resolve(field, layers) for field in DEFAULTS}
        yield from _parts(values, S3_MIN_PART if urlsplit(root).scheme == "s3" else 1)
        yield from _equal_parts(values, is_r2=is_r2)
        yield from _sizes(values)
        yield from _times(values)
        yield from _retention(values)
        yield from _source(values, has_bookies=has_bookies)


def _parts(values: Values, least: int) -> Iterator[ConfigProblem]:
    part, block = values["part_size"], values["block_size"]
    if part.value < least:
        yield ConfigProblem(
            part.path, f"{format_size(part.value)} is too small; S3 takes parts from {format_size(least)} on"
        )
    if block.value > part.value:
        sizes = f"blocks of {format_size(block.value)} do not fit parts of {format_size(part.value)}"
        yield _blame(f"{sizes}; blockSizeInBytes must be at most partSizeInBytes", block, part)


def _equal_parts(values: Values, *, is_r2: bool) -> Iterator[ConfigProblem]:
    equal, part, entry = values["equal_parts"], values["part_size"], values["max_entry_size"]
    if is_r2 and values["enabled"].value and not equal.value:
        yield ConfigProblem(equal.path, "R2 takes only parts of equal length: set equalParts: true")
    if equal.value and part.value < entry.value + ENTRY_OVERHEAD:
        yield _blame(
            f"with equalParts an entry of {format_size(entry.value)} does not fit a part of {format_size(part.value)}; "
            f"partSizeInBytes must be at least {format_size(entry.value + ENTRY_OVERHEAD)}",
            equal,
            part,
            entry,
        )
    readable = values["broker_readable"]
    if equal.value and readable.value:
        yield _blame(
            "a bridged ledger's object has parts of different length, which a store that needs equalParts refuses: "
            "switch one of brokerReadable and equalParts off",
            equal,
            readable,
        )


def _sizes(values: Values) -> Iterator[ConfigProblem]:
    segment, entry = values["max_segment_size"], values["max_entry_size"]
    most = MAX_OBJECT_SIZE - entry.value - ENTRY_OVERHEAD
    if segment.value > most:
        sizes = (
            f"a segment of {format_size(segment.value)} could with an entry of {format_size(entry.value)} reach 2 GiB"
        )
        yield _blame(f"{sizes}, which Java readers cannot hold; the most is {max(most, 0) // MIB}M", segment, entry)


def _times(values: Values) -> Iterator[ConfigProblem]:
    least, most = values["min_rollover_ms"], values["max_rollover_ms"]
    if least.value > most.value:
        yield _blame(
            f"the least age {format_time(least.value)} is above the greatest, {format_time(most.value)}", least, most
        )


def _retention(values: Values) -> Iterator[ConfigProblem]:
    minutes, megabytes = values["archive_retention_minutes"], values["archive_retention_mb"]
    if (minutes.value == 0) != (megabytes.value == 0):
        yield _blame(
            "archiveRetentionTimeInMinutes and archiveRetentionSizeInMB are 0 together or not at all, as in Pulsar; "
            "-1 is no limit",
            minutes,
            megabytes,
        )


def _source(values: Values, *, has_bookies: bool) -> Iterator[ConfigProblem]:
    source = values["source"]
    if source.value is Source.BOOKKEEPER and not has_bookies:
        yield ConfigProblem(
            source.path, "bookkeeper needs pulsar.metadataServiceUri, for example zk://host:2181/ledgers"
        )


def _blame(message: str, *involved: Resolved) -> ConfigProblem:
    """At the value of the most specific level: the others were fine before it. Between equals the first."""
    culprit = max(involved, key=lambda r: Level(r.level))
    return ConfigProblem(culprit.path, message)
