"""What there is to count: one listing for all bytes, and a bounded look into some topics for everything else.

However large the archive: data objects are never read, ages come from manifests, and of each topic that is looked into
only the newest records are read. Deletions and segments are what they are at the moment of each look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from offloader.ahead import map_ahead
from offloader.errors import FormatVersionError, IntegrityError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.history import History
from offloader.metadata.layout import topic_folder, topic_of
from offloader.metadata.log import READERS
from offloader.metadata.manifest import FAN, ManifestNode, ManifestRow, frontier, row_of
from offloader.metadata.state import CatalogHead
from offloader.model import Position, Segment, TopicName
from offloader.operations.cost.looked import TopicLook
from offloader.operations.cost.pace import pace_of, recent
from offloader.operations.cost.stored import Age, ByteClass, Listed, StoredSum, age_of, class_of
from offloader.ports.object_store import ObjectStore

NEWEST = 2 * FAN  # records of a topic that are read


def evenly(topics: Sequence[TopicName], most: int) -> list[TopicName]:
    """So many of them at most, spread over all: the same ones each time."""
    count = min(most, len(topics))
    return [topics[number * len(topics) // count] for number in range(count)]


def listed(
    store: ObjectStore, prefixes: Iterable[str], chosen: Iterable[TopicName], advance: Callable[[int], None]
) -> Listed:
    """Every object below the prefixes, by one listing of each; `advance` hears of each topic."""
    found, wanted = Listed(), set(chosen)
    folder, topic, heap = "", None, found.root
    for prefix in prefixes:
        for key, size in store.list(prefix):
            if not folder or not key.startswith(folder):
                topic, _ = topic_of(key)
                folder = "" if topic is None else topic_folder(topic)
                heap = found.root if topic is None else found.namespaces.setdefault(topic.namespace, StoredSum())
                if topic is not None:
                    heap.topics += 1
                    advance(1)
            of = class_of(key)
            heap.take(of, size)
            if topic in wanted and of is ByteClass.DATA:
                found.data[topic] = found.data.get(topic, 0) + size
                found.segments[topic] = found.segments.get(topic, 0) + 1
    return found


def looks(
    catalogs: Catalogs, topics: Sequence[TopicName], now: int, failed: Callable[[str], None]
) -> Iterator[TopicLook]:
    """Several topics at a time. One that cannot be read stops no other."""

    def look(topic: TopicName) -> TopicLook | str:
        try:
            return look_into(catalogs, topic, now)
        except (IntegrityError, FormatVersionError) as error:
            return f"{topic}: {str(error).removeprefix(f'{topic}: ')}"

    with ThreadPoolExecutor(READERS, "cost") as pool:
        for found in map_ahead(pool, look, topics, 2 * READERS):
            if isinstance(found, str):
                failed(found)
            else:
                yield found


def look_into(catalogs: Catalogs, topic: TopicName, now: int) -> TopicLook:
    """One topic. Raises what the store raises, IntegrityError, FormatVersionError."""
    history = catalogs.history(topic)
    head = history.head
    first = max(0, head.next_slot - NEWEST)
    newest = [
        recent(read.record)
        for read in history.read(range(first, head.next_slot))
        if isinstance(read.record, Segment) and not _is_gone(head, read.record.start, read.record.end)
    ]
    pending = head.removed.pending
    return TopicLook(
        topic,
        head,
        Counter(dict(_ages(history, now))),
        pace_of(newest, now, all_of_them=first == 0),
        sum(each.size for each in pending.ranges) if pending is not None else 0,
    )


def _ages(history: History, now: int) -> Iterator[tuple[Age, int]]:
    found: Counter[Age] = Counter()
    leaves = history.leaves
    for node, row in zip(frontier(leaves), history.before(leaves), strict=True):
        _add_ages(history, node, row, now, found)
    for read in history.read(range(leaves * FAN, history.head.next_slot)):
        _add(history.head, row_of(read.record), now, found)
    yield from found.items()


def _add_ages(history: History, node: ManifestNode, row: ManifestRow, now: int, found: Counter[Age]) -> None:
    """A sum whose messages are all of one age is not looked into."""
    if not row.size or _is_gone(history.head, row.start, row.end):
        return
    whole = age_of(row.early, now) is age_of(row.late, now) and not _touches(history.head, row)
    if whole and not row.untimed:
        found[age_of(row.late, now)] += row.size
        return
    for index, below in enumerate(history.manifest(node).rows):
        if node.level > 0:
            _add_ages(history, node.child(index), below, now, found)
        else:
            _add(history.head, below, now, found)


def _add(head: CatalogHead, row: ManifestRow, now: int, found: Counter[Age]) -> None:
    if row.size and not _is_gone(head, row.start, row.end):
        found[age_of(row.late, now)] += row.size


def _is_gone(head: CatalogHead, start: Position | None, end: Position | None) -> bool:
    """Whether all of it is deleted."""
    if start is None or end is None:
        return False
    return any(each.start <= start and end <= each.end for each in head.removed.ranges)


def _touches(head: CatalogHead, row: ManifestRow) -> bool:
    """Whether some of it may be deleted."""
    if row.start is None or row.end is None:
        return False
    return any(each.start <= row.end and row.start <= each.end for each in head.removed.ranges)
