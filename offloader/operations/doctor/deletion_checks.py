"""What the section `lifecycle` says, before anything is deleted by it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.config.lifecycle import Lifecycle
from offloader.lifecycle.deletion.timing import FLOOR_MS
from offloader.offload.core.check import Check, fail


def quarantine(section: Lifecycle) -> Iterator[Check]:
    """Whether the floor under the quarantine is one that nobody may have in production."""
    floor = section.quarantine_floor_ms
    if floor < FLOOR_MS:
        said = (
            f"lifecycle.quarantineFloor is {floor // 1000} s: a broker that is only slow may still use what is deleted"
        )
        yield fail("quarantine-floor", said, "it is for tests alone: remove it")
