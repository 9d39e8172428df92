"""The scan of a bucket of Pulsar's own offloader: keys first, then the ledger lists, then each candidate again.

In memory are the keys that are its, all of them, until the lists are read.

Of what no list names, bridge logs have the last word: a bridge is recorded before its first byte, and its ledgers' list
names it only later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from offloader.ahead import map_ahead
from offloader.bridge.core.rounds import NOTHING_BRIDGED, BridgedLedgers
from offloader.errors import FormatVersionError, IntegrityError, RemovedFeatureError
from offloader.lifecycle.bucket.names import ObjectKind
from offloader.lifecycle.bucket.orphans import BucketOrphan
from offloader.lifecycle.bucket.reading import MOST_SKEW_MS
from offloader.lifecycle.bucket.stock_rules import StockNames, doubted, owner_of, stock_names, stock_ruling
from offloader.lifecycle.bucket.verdicts import Doubts
from offloader.lifecycle.ledgers.references import References
from offloader.metadata.stock_keys import LedgerKey, parse_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

READERS = 8
NAMED = "a ledger list names it"
BRIDGED = "a bridge's round is under way that names it, or has just ended, or nobody can tell what the archive has"
OTHERS = "it is another cluster's"
MAY_BE_SHARED = (
    "Another cluster of the same name may use this bucket: say lifecycle.bucketIsNotShared: true, if none does, or if "
    "lifecycle.metadataStores names all of them."
)
_FIRST = "!"  # before all names that matter: so that a store lists no more than is taken


@dataclass(frozen=True)
class StockScanner:
    """`store`: what `managedLedgerOffloadBucket` names. `references`: reads all ledger lists of all metadata stores,
    when it is called and not before. `cluster`: ours, as objects' metadata say it. `bridged`: what the bridge log of a
    topic says when it is called; it raises IntegrityError or FormatVersionError where it cannot be read.
    `check_records`: reads what a topic's catalog has of some ledgers; it raises these, too, and RemovedFeatureError."""

    store: ObjectStore
    references: Callable[[], Sequence[References]]
    cluster: str
    clock_ms: Callable[[], int]
    grace_ms: int
    bridged: Callable[[TopicName], BridgedLedgers] = lambda _: NOTHING_BRIDGED
    check_records: Callable[[TopicName, Collection[int]], None] = lambda *_: None
    alone: bool = False
    """Whether the operator says that no other cluster of the same name, whose lists are not read, uses the bucket."""

    def scan(self, progress: Callable[[int], None] = lambda _: None) -> tuple[BucketOrphan, ...]:
        """Every object whose key is one of that offloader's."""
        keys = [key for key, _ in self.store.list() if parse_key(key) is not None]
        progress(len(keys))
        found = self._judge(keys, stock_names(self.references()), self._doubts(self.grace_ms))
        return tuple(each for each in found.values() if each is not None)

    def look(self, keys: Sequence[str], grace_ms: int = 0) -> dict[str, BucketOrphan | str]:
        """Some keys by the same rules. By key: what it is, or why it stays; what is not there is left out. By default
        no grace: the second phase has one of its own."""
        there = [key for key in keys if self.store.stat(key) is not None]
        if len(there) < len(keys):
            self.has_anything()  # an object looks absent in a bucket that is not there, too
        names = stock_names(self.references())
        told: dict[str, BucketOrphan | str] = {
            key: NAMED if (found := parse_key(key)) is not None and names.names(found) else OTHERS for key in there
        }
        judged = self._judge(there, names, self._doubts(grace_ms))
        return told | {key: BRIDGED if each is None else each for key, each in judged.items()}

    def has_anything(self) -> bool:
        """Whether there is an object. Raises what the store raises where there is no such bucket, or it may not be
        listed."""
        return next(iter(self.store.list(start_after=_FIRST)), None) is not None

    def _doubts(self, grace_ms: int) -> Doubts:
        """A cluster's name in an object's metadata does not identify the cluster."""
        return Doubts(self._now(), grace_ms, () if self.alone else (MAY_BE_SHARED,))

    def _now(self) -> int:
        """Nothing of ours is written into another program's bucket, also not to learn its time."""
        return self.clock_ms() - MOST_SKEW_MS

    def _judge(self, keys: Sequence[str], names: StockNames, doubts: Doubts) -> dict[str, BucketOrphan | None]:
        """What no list names, by key; None: it is a bridge's. A round that ended while the lists were read may be named
        by none of them, and by no round that is under way: then they are read once more."""
        found = {each.key: each for each in self._unnamed(keys, names, doubts)}
        bridges = {topic: self._bridge(topic) for topic in {o.topic for o in found.values() if o.topic is not None}}
        told: dict[str, BucketOrphan | None] = {}
        ended: list[str] = []
        for key, orphan in found.items():
            bridge = None if orphan.topic is None else bridges[orphan.topic]
            told[key] = orphan
            if isinstance(bridge, str):
                told[key] = replace(orphan, ruling=doubted(orphan.ruling, bridge))
            elif bridge is not None and orphan.stock is not None:
                if orphan.stock.uuid in bridge.under_way:
                    told[key] = None
                elif orphan.stock.uuid in bridge.uuids:
                    ended.append(key)
        if ended:
            again = stock_names(self.references())
            told |= {key: None for key in ended if (parsed := parse_key(key)) is not None and again.names(parsed)}
        return told | dict.fromkeys(self._of_unread(each for each in found.values() if told[each.key] is not None))

    def _of_unread(self, orphans: Iterable[BucketOrphan]) -> Iterator[str]:
        """The keys of those of which nobody can tell what the archive has: an older version let it read brokers' copies
        in place of segments. One look at a topic's catalog, behind the lists."""
        of_topics: dict[TopicName, dict[str, LedgerKey]] = {}
        for each in orphans:
            if each.topic is not None and each.stock is not None:
                of_topics.setdefault(each.topic, {})[each.key] = each.stock
        for topic, named in of_topics.items():
            try:
                self.check_records(topic, {stock.ledger for stock in named.values()})
            except (IntegrityError, FormatVersionError, RemovedFeatureError):
                yield from named

    def _bridge(self, topic: TopicName) -> BridgedLedgers | str:
        """Why nobody knows what a topic's bridge has, where its log cannot be read."""
        try:
            return self.bridged(topic)
        except (IntegrityError, FormatVersionError) as error:
            return f"The bridge log of {topic} cannot be read, which may name it: {error}".rstrip(".") + "."

    def _unnamed(self, keys: Sequence[str], names: StockNames, doubts: Doubts) -> Iterator[BucketOrphan]:
        parsed = ((key, found) for key in keys if (found := parse_key(key)) is not None)
        unnamed = ((key, found) for key, found in parsed if not names.names(found))
        with ThreadPoolExecutor(READERS, "stock-scan") as pool:
            judged = map_ahead(pool, lambda each: self._judged(*each, names, doubts), unnamed, 2 * READERS)
            yield from (orphan for orphan in judged if orphan is not None)

    def _judged(self, key: str, parsed: LedgerKey, names: StockNames, doubts: Doubts) -> BucketOrphan | None:
        stat = self.store.stat(key)
        if stat is None:
            return None
        modified = stat.modified_at or None
        ruled = stock_ruling(parsed, stat.meta, names, self.cluster, modified, doubts)
        kind = ObjectKind.STOCK_INDEX if parsed.is_index else ObjectKind.STOCK_DATA
        if ruled is None:
            return None
        return BucketOrphan(key, kind, stat.size, stat.etag, modified, ruled, owner_of(stat.meta), stock=parsed)
