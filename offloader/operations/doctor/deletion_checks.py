"""What the section `lifecycle` says, before anything is deleted by it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.config.lifecycle import Lifecycle
from offloader.errors import OffloadError
from offloader.lifecycle.deletion.timing import FLOOR_MS
from offloader.offload.core.check import Check, fail, ok, warn


def quarantine(section: Lifecycle) -> Iterator[Check]:
    """Whether the floor under the quarantine is one that nobody may have in production."""
    floor = section.quarantine_floor_ms
    if floor < FLOOR_MS:
        said = (
            f"lifecycle.quarantineFloor is {floor // 1000} s: a broker that is only slow may still use what is deleted"
        )
        yield fail("quarantine-floor", said, "it is for tests alone: remove it")


def grace(section: Lifecycle) -> Iterator[Check]:
    """Whether whoever reads the archive just now can end before what goes of it is gone."""
    if section.archive_grace_ms < FLOOR_MS:
        said = f"lifecycle.archiveGrace is {section.archive_grace_ms // 1000} s: a longer read is told of a deletion"
        yield warn("archive-grace", said, "make it longer than the longest read: a Spark job, an export, a restore")


def stock_bucket(found: str | OffloadError | None) -> Iterator[Check]:
    """Whether copies of Pulsar's own offloader could be read back: without that their ledgers stay for ever."""
    name = "stock-bucket"
    if isinstance(found, OffloadError):
        yield fail(name, str(found), "lifecycle.stockBucket: it is reached as storage is, and must be listed and read")
    elif found is not None:
        yield ok(name, f"copies of Pulsar's own offloader can be read from {found}")
