"""Which archived topic goes to which topic, and what has to be made before. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from offloader.errors import FatalError, TopicNotFoundError
from offloader.model import TopicName

Pair = tuple[TopicName, TopicName]


# Of so many partitions for each archived one, the number is rather a date or an id that stands in a topic's name.
MOST_ABSENT = 100


@dataclass(frozen=True, slots=True)
class Existing:
    """The target's namespace: the topics that hold entries, and the partitioned ones' numbers of partitions."""

    topics: Collection[TopicName]
    partitioned: Mapping[TopicName, int]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Sources and targets in order. `create`: make the target, with so many partitions (0: not partitioned)."""

    pairs: tuple[Pair, ...]
    create: int | None = None


def pairing(
    source: TopicName,
    archived: Collection[TopicName],
    target: TopicName,
    existing: Existing,
    partitions: int | None = None,
) -> Pairing:
    """A topic goes to a topic of its kind; all partitions of one to as many. `partitions`: how many the source had, by
    default up to the highest archived one. Raises FatalError; TopicNotFoundError where nothing is archived.
    """
    if source in archived:
        return _single(source, target, existing)
    parts = sorted((t for t in archived if t.partitioned_name == str(source)), key=lambda t: t.partition)
    if not parts:
        raise TopicNotFoundError(f"{source} is not in the archive; `offloader topics list` shows what is")
    count = parts[-1].partition + 1 if partitions is None else partitions
    if partitions is None and count > MOST_ABSENT * len(parts):
        raise FatalError(
            f"{source}: {len(parts)} of at least {count} partitions are archived, the highest is {parts[-1]}; name "
            f"that topic alone, or say with --partitions {count} or more that all of them are to be made"
        )
    if parts[-1].partition >= count:
        raise FatalError(
            f"{source} has {parts[-1].partition + 1} archived partitions at least, not {count}: see --partitions"
        )
    return _partitioned(source, parts, target, existing, count)


def _single(source: TopicName, target: TopicName, existing: Existing) -> Pairing:
    if target in existing.partitioned:
        count = existing.partitioned[target]
        raise FatalError(
            f"{target} has {count} partitions, {source} is one topic: name a partition, {target.name}-partition-0"
        )
    if target in existing.topics:
        return Pairing(((source, target),))
    if target.partition >= 0:
        raise FatalError(f"{target} does not exist: create the topic with its partitions first")
    return Pairing(((source, target),), create=0)


def _partitioned(
    source: TopicName, parts: list[TopicName], target: TopicName, existing: Existing, count: int
) -> Pairing:
    if target in existing.topics or target.partition >= 0:
        raise FatalError(f"{source} has {count} partitions, {target} is one topic: name another target")
    partitions = existing.partitioned.get(target)
    if partitions not in (None, count):
        raise FatalError(
            f"{target} has {partitions} partitions, {source} {count}: keys would move between partitions; use "
            f"--partitions {partitions} if that is how many the source had"
        )
    pairs = tuple((part, partition_of(target, part.partition)) for part in parts)
    return Pairing(pairs, create=count if partitions is None else None)


def partition_of(topic: TopicName, number: int) -> TopicName:
    """One partition's name."""
    return TopicName(topic.tenant, topic.namespace_part, f"{topic.name}-partition-{number}")
