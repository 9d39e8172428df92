"""The scan of a bucket of Pulsar's own offloader: keys first, then the ledger lists, then each candidate again.

In memory are the keys that are its, all of them, until the lists are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from offloader.ahead import map_ahead
from offloader.lifecycle.bucket.names import ObjectKind
from offloader.lifecycle.bucket.orphans import BucketOrphan
from offloader.lifecycle.bucket.reading import MOST_SKEW_MS
from offloader.lifecycle.bucket.stock_rules import StockNames, owner_of, stock_names, stock_ruling
from offloader.lifecycle.bucket.verdicts import Doubts
from offloader.lifecycle.ledgers.references import References
from offloader.metadata.stock_keys import LedgerKey, parse_key
from offloader.ports.object_store import ObjectStore

READERS = 8
NAMED = "a ledger list names it"
OTHERS = "it is another cluster's"
_FIRST = "!"  # before all names that matter: so that a store lists no more than is taken


@dataclass(frozen=True)
class StockScanner:
    """`store`: what `managedLedgerOffloadBucket` names. `references`: reads all ledger lists of all metadata stores,
    when it is called and not before. `cluster`: ours, as objects' metadata say it."""

    store: ObjectStore
    references: Callable[[], Sequence[References]]
    cluster: str
    clock_ms: Callable[[], int]
    grace_ms: int

    def scan(self, progress: Callable[[int], None] = lambda _: None) -> tuple[BucketOrphan, ...]:
        """Every object whose key is one of that offloader's."""
        keys = [key for key, _ in self.store.list() if parse_key(key) is not None]
        progress(len(keys))
        return tuple(self._unnamed(keys, stock_names(self.references()), Doubts(self._now(), self.grace_ms)))

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
        return told | {each.key: each for each in self._unnamed(there, names, Doubts(self._now(), grace_ms))}

    def has_anything(self) -> bool:
        """Whether there is an object. Raises what the store raises where there is no such bucket, or it may not be
        listed."""
        return next(iter(self.store.list(start_after=_FIRST)), None) is not None

    def _now(self) -> int:
        """Nothing of ours is written into another program's bucket, also not to learn its time."""
        return self.clock_ms() - MOST_SKEW_MS

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
