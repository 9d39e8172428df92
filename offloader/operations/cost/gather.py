"""What there is to count: one listing for all bytes, and a bounded look into some topics for everything else; and the
same bytes on bookies: how many copies they keep, and what BookKeeper still holds of archived topics.

However large the archive: data objects are never read, ages come from manifests, and of each topic that is looked into
only the newest records are read. Deletions and segments are what they are at the moment of each look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from offloader.ahead import map_ahead
from offloader.errors import AbsentError, AccessDeniedError, FormatVersionError, IntegrityError, RemovedFeatureError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.history import History
from offloader.metadata.layout import topic_folder, topic_of
from offloader.metadata.log import READERS
from offloader.metadata.manifest import FAN, ManifestNode, ManifestRow, frontier, row_of
from offloader.metadata.state import CatalogHead
from offloader.model import Position, Segment, TopicName
from offloader.operations.cost.plan import pace_of, recent
from offloader.operations.cost.stored import Age, ByteClass, Listed, StillHeld, StoredSum, TopicLook, age_of, class_of
from offloader.ports.admin import Admin, TopicInfo
from offloader.ports.object_store import ObjectStore

NEWEST = 2 * FAN  # records of a topic that are read
PERSISTENCE = "persistence"
QUORUM = "bookkeeperWriteQuorum"
DEFAULT_QUORUM = "managedLedgerDefaultWriteQuorum"


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
        except (IntegrityError, FormatVersionError, RemovedFeatureError) as error:
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


class Copies:
    """How many copies bookies keep of what is written to a namespace now: what the namespace says, else the brokers."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._default: int | None = None
        self._of: dict[str, int | None] = {}

    def of(self, namespace: str) -> int | None:
        """None: neither says it."""
        if namespace not in self._of:
            self._of[namespace] = self._asked(namespace)
        return self._of[namespace]

    def _asked(self, namespace: str) -> int | None:
        try:
            said = self._admin.namespace_policies(namespace).get(PERSISTENCE)
        except AbsentError:
            return None
        if isinstance(said, dict) and (found := _number(said.get(QUORUM))):
            return found
        if self._default is None:
            self._default = self._of_brokers()
        return self._default or None

    def _of_brokers(self) -> int:
        """0: they do not say it, for example because they say it to super users alone."""
        try:
            return _number(self._admin.runtime_configuration().get(DEFAULT_QUORUM))
        except (AbsentError, AccessDeniedError):
            return 0


def _number(value: object) -> int:
    text = str(value)
    return int(text) if text.isdigit() and len(text) < 4 else 0


def still_held(admin: Admin, heads: Iterable[CatalogHead]) -> list[StillHeld]:
    """Of topics that Pulsar still has; of brokers that do not say it, nothing. What brokers have offloaded by
    themselves may be gone from bookies, and is left out. Raises what the admin REST raises."""
    found = []
    for head in heads:
        try:
            info = admin.topic_info(head.topic)
        except AbsentError:
            continue
        sizes = {ledger: size for ledger, (_, size) in info.sizes.items() if ledger not in info.offloaded}
        ours = head.end is not None and head.is_of(info.created, info.ledgers)
        end = head.end if ours else None
        archived = 0 if end is None else sum(_archived(ledger, info, end) for ledger in sizes)
        found.append(StillHeld(head.topic, sum(sizes.values()), archived))
    return found


def _archived(ledger: int, info: TopicInfo, end: Position) -> int:
    """A ledger's bytes that the archive has; of the one in which the archive ends, the entries' share."""
    entries, size = info.sizes[ledger]
    if ledger < end.ledger:
        return size
    return size * min(end.entry + 1, entries) // entries if ledger == end.ledger and entries else 0
