"""What the section `lifecycle` says, before anything is deleted by it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from offloader.config.lifecycle import Lifecycle
from offloader.errors import OffloadError
from offloader.lifecycle.deletion.timing import FLOOR_MS
from offloader.lifecycle.retention.policy import NOT_FOLLOWED, may_follow
from offloader.model import TopicName
from offloader.offload.core.check import Check, fail, ok, remedy_for

SHOWN = 5  # topics of many
MOST_ASKED = 1000  # topics, of which each can have a retention of its own


def quarantine(section: Lifecycle) -> Iterator[Check]:
    """Whether the floor under the quarantine, and under all other delays, is one that nobody may have in production."""
    floor = section.quarantine_floor_ms
    if floor < FLOOR_MS:
        said = f"lifecycle.quarantineFloor is {floor // 1000} s: what is deleted may still be in use, or just be read"
        yield fail("quarantine-floor", said, "it is for tests alone: remove it")


def followed(found: Mapping[TopicName, tuple[int, int] | OffloadError], topics: int) -> Iterator[Check]:
    """Whether topics with `followPulsarRetention` have a retention in Pulsar that can be followed. `found`: of each
    that was asked for; `topics`: how many there are."""
    name = "follow-pulsar-retention"
    at_zero = [topic for topic, said in found.items() if not isinstance(said, OffloadError) and not may_follow(said)]
    unread = {topic: said for topic, said in found.items() if isinstance(said, OffloadError)}
    if at_zero:
        remedy = "give them a retention in Pulsar (pulsar-admin namespaces set-retention), or do not follow it"
        yield fail(name, f"{_some(at_zero)}: {NOT_FOLLOWED}", remedy)
    if unread:
        first = next(iter(unread.values()))
        text = f"{_some(list(unread))}: the retention in Pulsar cannot be read: {first}"
        yield fail(name, text, remedy_for(first, "let the role read it", "see the reason"))
    if found and not at_zero and not unread:
        more = "" if len(found) == topics else f", of {topics}; `archive retention plan` asks for each"
        yield ok(name, f"{len(found)} topics follow their retention in Pulsar{more}")


def _some(topics: Sequence[TopicName]) -> str:
    more = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    return ", ".join(str(topic) for topic in topics[:SHOWN]) + more


def stock_bucket(found: str | OffloadError | None) -> Iterator[Check]:
    """Whether copies of Pulsar's own offloader could be read back: without that their ledgers stay for ever."""
    name = "stock-bucket"
    if isinstance(found, OffloadError):
        yield fail(name, str(found), "lifecycle.stockBucket: it is reached as storage is, and must be listed and read")
    elif found is not None:
        yield ok(name, f"copies of Pulsar's own offloader can be read from {found}")
